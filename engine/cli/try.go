package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

func (a *app) tryCommand() *cobra.Command {
	var target targetFlags
	var file string
	cmd := a.command(&cobra.Command{
		Use:   "try SOURCE [--url URL | --var NAME=VALUE]... [--file PAGE]",
		Short: "Fetch and parse one target, store nothing",
		Long: `Fetch and parse one target as a run would, and show the record, the fields that
are missing, the rows that would be set aside (rows_bad = "quarantine"), the links
that would be followed, and what became of it. Nothing is stored and no store is needed.
Without --url and --var it is the source's first target; with --file the page is
read from a file ("-" for stdin) instead of the network. What a run would send is
sent, also a request that must not be repeated.

` + exits(exitDone, exitFailed, exitUsage, exitConfig),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel try catalog\n  semel try catalog --var sku=42\n  semel try catalog --file saved.html --json",
		Args:              exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) error { return a.try(ctx, args[0], &target, file) })
	target.register(cmd)
	cmd.Flags().StringVar(&file, "file", "", "parse this `PAGE` (.json, else HTML) instead of fetching one")
	return cmd
}

// trial is what try prints with --json.
type trial struct {
	Source    string        `json:"source"`
	Key       string        `json:"key"`
	Category  *string       `json:"category"` // null: it parsed
	Reason    string        `json:"reason,omitempty"`
	Gone      bool          `json:"gone,omitempty"`
	Step      string        `json:"step,omitempty"` // of a workflow, where it ended
	Phase     string        `json:"phase,omitempty"`
	Status    int           `json:"status"`
	FinalURL  string        `json:"final_url,omitempty"`
	Endpoint  string        `json:"endpoint,omitempty"`
	Country   string        `json:"country,omitempty"`
	BytesUp   int64         `json:"bytes_up"`
	BytesDown int64         `json:"bytes_down"`
	Records   []trialRecord `json:"records"`
	Problems  []api.Problem `json:"problems,omitempty"` // rows that a run would set aside; of a page that fails, why it does not fit
	Links     []trialLink   `json:"links,omitempty"`    // that a run would follow
}

// trialLink is engine.Link with names for JSON.
type trialLink struct {
	Source string `json:"source"`
	URL    string `json:"url"`
	Key    string `json:"key"`
}

type trialRecord struct {
	Key     string          `json:"key"`
	Data    json.RawMessage `json:"data"`
	Missing []string        `json:"missing"`
}

func (a *app) try(ctx context.Context, name string, flags *targetFlags, file string) error {
	c, err := a.loadConfig()
	if err != nil {
		return err
	}
	s, err := findSource(c, name)
	if err != nil {
		return err
	}
	target, err := flags.target(s)
	if err != nil {
		return err
	}
	e, err := engine.New(engineOptions(c, []*config.Source{s}, a.log()))
	if err != nil {
		return err
	}
	defer e.Close()
	t, err := a.execTrial(ctx, e, c, s, target, file)
	if err != nil {
		return targetFault(s, target, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.showTrial(s.Name, t)
}

func (a *app) execTrial(ctx context.Context, e *engine.Engine, c *config.Config, s *config.Source, target intake.Target, file string) (engine.Trial, error) {
	if file == "" {
		return e.Try(ctx, s.Name, target)
	}
	body, err := a.readPage(file, c.Engine.MaxBodyBytes)
	if err != nil {
		return engine.Trial{}, err
	}
	return e.TryPage(ctx, s.Name, target, filePage(file, body))
}

// readPage reads a page under the cap that fetched ones have.
func (a *app) readPage(path string, limit int64) ([]byte, error) {
	in := a.stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("reading the page: %w", err)
		}
		defer file.Close()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("reading the page %s: it is larger than engine.max_body (%s)", path, bytesText(limit))
	}
	return body, nil
}

// showTrial prints a trial; one that gave no record is an error.
func (a *app) showTrial(source string, t engine.Trial) error {
	var err error
	if a.json {
		err = a.line(newTrial(source, t))
	} else {
		err = a.trialText(t)
	}
	if err == nil && t.Category != "" {
		err = fmt.Errorf("%s: %s", t.Category, plain(t.Reason))
	}
	return err
}

func newTrial(source string, t engine.Trial) trial {
	out := trial{
		Source: source, Key: t.Key, Reason: t.Reason, Gone: t.Gone, Step: t.Attempt.Step,
		Phase: t.Attempt.Phase, Status: t.Attempt.Status, FinalURL: t.Attempt.FinalURL,
		Endpoint: t.Attempt.Endpoint, Country: t.Attempt.Country,
		BytesUp: t.Attempt.BytesUp, BytesDown: t.Attempt.BytesDown,
		Records: make([]trialRecord, 0, len(t.Records)), Problems: api.NewProblems(t.Problems),
	}
	if t.Category != "" {
		category := string(t.Category)
		out.Category = &category
	}
	for _, r := range t.Records {
		missing := r.Missing
		if missing == nil {
			missing = []string{}
		}
		out.Records = append(out.Records, trialRecord{r.Key, r.Data, missing})
	}
	for _, l := range t.Links {
		out.Links = append(out.Links, trialLink(l))
	}
	return out
}

// trialText prints the records to stdout, and what is to be said about them to
// stderr.
func (a *app) trialText(t engine.Trial) error {
	a.notef("job %s", t.Key)
	if at := t.Attempt; at.Phase != "" {
		via := ""
		if at.Endpoint != "" {
			via = " through " + at.Endpoint
		}
		status := ""
		if at.Status != 0 {
			status = fmt.Sprintf("status %d, ", at.Status)
		}
		a.notef("%s%sreached phase %s%s, %s up, %s down", stepText(at.Step), status, at.Phase, via, bytesText(at.BytesUp), bytesText(at.BytesDown))
		if at.FinalURL != "" {
			a.notef("page %s", plain(at.FinalURL))
		}
	}
	if t.Gone {
		a.notef("the page says that the target is gone: that would be recorded")
	}
	for _, r := range t.Records {
		var text bytes.Buffer
		if err := json.Indent(&text, r.Data, "", "  "); err != nil {
			return fmt.Errorf("showing record %s: %w", r.Key, err)
		}
		a.printf("%s\n", text.Bytes())
		if len(r.Missing) > 0 {
			a.notef("record %s: missing %s", plain(r.Key), strings.Join(r.Missing, ", "))
		}
	}
	if t.Category == "" && len(t.Problems) > 0 {
		a.setAsideText(t.Problems)
	}
	for _, l := range t.Links {
		a.notef("follows %s: %s", l.Source, plain(l.URL))
	}
	if t.Category == "" && !t.Gone && len(t.Records) == 0 {
		return errors.New("the page has no rows")
	}
	return nil
}

// setAsideText says which rows of a page do not fit, and what a run does with them.
func (a *app) setAsideText(rows []storage.Problem) {
	for _, p := range api.NewProblems(rows) {
		a.notef("set aside: %s", problemText(p))
	}
	a.notef("%s set aside (rows_bad): a run would commit the others, and exit with %d", count(len(rows), "row"), exitJobs)
}
