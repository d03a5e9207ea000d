package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	"semel/engine"
	"semel/engine/config"
	"semel/storage"
)

// Quarantined is a page that did not fit the rules, and was set aside.
type Quarantined struct {
	ID            uint64           `json:"id"`  // of its job
	Job           string           `json:"job"` // its key
	Source        string           `json:"source"`
	State         storage.JobState `json:"state"` // of the job: complete where rows of its page were set aside, or it keeps what an older version of the rules gave
	URL           string           `json:"url"`
	Since         time.Time        `json:"since"`
	Step          string           `json:"step,omitempty"` // of the workflow that the page is of
	ParserVersion int              `json:"parser_version"` // of the rules that it did not fit
	Rows          int              `json:"rows"`           // of it that did fit, and were committed
	Problems      []Problem        `json:"problems"`       // the first of them
	More          int              `json:"more"`           // problems beyond these
	Page          string           `json:"page,omitempty"` // SHA-256 of the page kept, hex; "": none is
}

// Problem is one place where a page does not fit its rules.
type Problem struct {
	Row    *int   `json:"row"` // from 0; null: the page as a whole
	Field  string `json:"field"`
	Value  string `json:"value"` // what stands there, shortened
	Reason string `json:"reason"`
}

// QuarantineFilter says which pages to list; zero fields let all through.
type QuarantineFilter struct {
	Source string
	Field  string // pages with a problem of this field
	Limit  int    // 0: no limit
}

// PageSelection names pages in quarantine by their jobs, or all of a source: one of
// both.
type PageSelection struct {
	Refs   []string `json:"refs,omitempty"` // ids or keys of jobs
	Source string   `json:"source,omitempty"`
	Rules  Rules    `json:"rules,omitempty"`
}

// Rules are versions and fingerprints of sources' rules as the caller's config has them, by
// source: for a call that reads pages by the rules of the process that holds the
// store. A source that is not there may have any.
type Rules map[string]string

// RulesOf are those of a config.
func RulesOf(c *config.Config) Rules {
	rules := Rules{}
	for i := range c.Sources {
		rules[c.Sources[i].Name] = rulesName(&c.Sources[i])
	}
	return rules
}

func rulesName(src *config.Source) string {
	return fmt.Sprintf("v%d %s", src.Rules.Version(), src.Rules.Fingerprint())
}

// check refuses a source whose rules are not what the caller means. Errors:
// ErrUnknownSource, ErrOtherConfig.
func (r Rules) check(l *Local, source string) error {
	src := l.Config.Source(source)
	if src == nil {
		return fmt.Errorf("%w %q: its rules are needed", ErrUnknownSource, source)
	}
	if meant, ok := r[source]; ok && meant != rulesName(src) {
		return fmt.Errorf("reading pages of source %s: %w", source, ErrOtherConfig)
	}
	return nil
}

// Released is what became of a page that was read again.
type Released struct {
	ID       uint64    `json:"id"`
	Job      string    `json:"job"`
	Released bool      `json:"released"`         // all of it is committed
	Problems []Problem `json:"problems"`         // that are left
	Unread   string    `json:"unread,omitempty"` // why it could not be read, for people
}

// Quarantine implements Service.
func (l *Local) Quarantine(ctx context.Context, f QuarantineFilter, fn func(Quarantined) error) error {
	if f.Source != "" {
		if err := l.known(f.Source); err != nil {
			return err
		}
	}
	return eachRow(ctx, f.Limit, func(after uint64) (page []Quarantined, last uint64, err error) {
		err = l.Store.View(func(tx *storage.Tx) (err error) {
			page, last, err = quarantinePage(tx, after, f)
			return err
		})
		if err != nil {
			err = fmt.Errorf("listing the quarantine: %w", err)
		}
		return page, last, err
	}, fn)
}

// quarantinePage reads some pages behind an id, and the last id; 0: there are no more.
func quarantinePage(tx *storage.Tx, after uint64, f QuarantineFilter) (page []Quarantined, last uint64, err error) {
	last, listErr := tx.Quarantined(after, pageRows, func(q *storage.Quarantine) bool {
		var out Quarantined
		if out, err = newQuarantined(tx, q); err == nil && f.matches(&out) {
			page = append(page, out)
		}
		return err == nil
	})
	return page, last, errors.Join(listErr, err)
}

func (f QuarantineFilter) matches(q *Quarantined) bool {
	ofField := func(p Problem) bool { return p.Field == f.Field }
	return (f.Source == "" || f.Source == q.Source) && (f.Field == "" || slices.ContainsFunc(q.Problems, ofField))
}

func newQuarantined(tx *storage.Tx, q *storage.Quarantine) (Quarantined, error) {
	out := Quarantined{
		ID: q.Job, Since: q.Since, ParserVersion: q.Version,
		Rows: q.Rows, Problems: NewProblems(q.Problems), More: q.More,
	}
	j, err := tx.Job(q.Job)
	if err != nil {
		return out, err
	}
	out.Job, out.Source, out.State, out.URL = j.Key.String(), j.Key.Source, j.State, j.URL
	read, err := tx.Reparsable(j)
	if err == nil && !read.Page.IsZero() {
		out.Page = read.Page.String()
	}
	out.Step = read.Step
	return out, err
}

// NewProblems are problems of the store as Quarantined has them; of none, an empty list.
func NewProblems(list []storage.Problem) []Problem {
	problems := make([]Problem, len(list))
	for i, p := range list {
		problems[i] = Problem{Field: p.Field, Value: p.Value, Reason: p.Reason}
		if p.Row >= 0 {
			problems[i].Row = &p.Row
		}
	}
	return problems
}

// QuarantinedPage implements Service.
func (l *Local) QuarantinedPage(_ context.Context, ref string, w io.Writer) error {
	var read storage.Attempt
	err := l.Store.View(func(tx *storage.Tx) error {
		j, err := find(tx, ref)
		if err != nil {
			return err
		}
		if _, err := tx.Quarantine(j.ID); err != nil {
			return err
		}
		read, err = tx.Reparsable(j)
		if err == nil && read.Page.IsZero() {
			err = fmt.Errorf(`page of job %s: %w: none was kept, for store.bodies was "none" when it was fetched`, j.Key, storage.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return err
	}
	body, err := l.Store.ReadPage(read.Page)
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// QuarantinedJob implements Service.
func (l *Local) QuarantinedJob(_ context.Context, ref string) (out Quarantined, err error) {
	err = l.Store.View(func(tx *storage.Tx) error {
		j, err := find(tx, ref)
		if err != nil {
			return err
		}
		q, err := tx.Quarantine(j.ID)
		if err == nil {
			out, err = newQuarantined(tx, q)
		}
		return err
	})
	return out, err
}

// addQuarantine tells of what a job has in quarantine, if anything.
func addQuarantine(tx *storage.Tx, j *storage.Job, story *JobStory) error {
	q, err := tx.Quarantine(j.ID)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	out, err := newQuarantined(tx, q)
	if err != nil {
		return err
	}
	story.Quarantine = &out
	if j.State == storage.StateFailed && out.Page != "" {
		story.Next = fmt.Sprintf("nothing: mend the rules and raise parser.version, then semel quarantine release %d reads its page again, without a request (semel retry %d asks for it again)", j.ID, j.ID)
	}
	return nil
}

// ReleasePages implements Service.
func (l *Local) ReleasePages(ctx context.Context, s PageSelection, fn func(Released) error) error {
	return l.eachSelected(ctx, s, func(q Quarantined) error {
		if err := s.Rules.check(l, q.Source); err != nil {
			return err
		}
		left, err := l.Release(ctx, q.Source, q.ID)
		switch {
		case errors.Is(err, engine.ErrNoPage), errors.Is(err, storage.ErrTransition):
			return fn(Released{ID: q.ID, Job: q.Job, Problems: q.Problems, Unread: err.Error()})
		case err != nil:
			return err
		}
		return fn(Released{ID: q.ID, Job: q.Job, Released: len(left) == 0, Problems: NewProblems(left)})
	})
}

// DiscardPages implements Service.
func (l *Local) DiscardPages(ctx context.Context, s PageSelection, fn func(Quarantined) error) error {
	return l.eachSelected(ctx, s, func(q Quarantined) error {
		if err := l.Store.Update(ctx, func(tx *storage.Tx) error { return tx.DiscardQuarantine(q.ID) }); err != nil {
			return err
		}
		return fn(q)
	})
}

// eachSelected calls fn with the pages of a selection. Those that are named are all
// there when it begins; of a source, one that a run has completed meanwhile is no matter.
func (l *Local) eachSelected(ctx context.Context, s PageSelection, fn func(Quarantined) error) error {
	if (len(s.Refs) == 0) == (s.Source == "") {
		return badRequest("name refs or a source, and not both")
	}
	var pages []Quarantined
	for _, ref := range s.Refs {
		q, err := l.QuarantinedJob(ctx, ref)
		if err != nil {
			return err
		}
		pages = append(pages, q)
	}
	if len(s.Refs) == 0 {
		return l.Quarantine(ctx, QuarantineFilter{Source: s.Source}, func(q Quarantined) error {
			err := fn(q)
			if errors.Is(err, storage.ErrNotFound) && l.hasLeft(q.ID) {
				return nil
			}
			return err
		})
	}
	for _, q := range pages {
		if err := fn(q); err != nil {
			return err
		}
	}
	return nil
}

// hasLeft reports whether nothing of a job is in quarantine.
func (l *Local) hasLeft(job uint64) bool {
	err := l.Store.View(func(tx *storage.Tx) error {
		_, err := tx.Quarantine(job)
		return err
	})
	return errors.Is(err, storage.ErrNotFound)
}

// parseQuarantineFilter reads a QuarantineFilter from a query, and values write it.
func parseQuarantineFilter(query url.Values) (f QuarantineFilter, err error) {
	err = eachParameter(query, func(name, value string) (err error) {
		switch name {
		case "source":
			f.Source = value
		case "field":
			f.Field = value
		case "limit":
			f.Limit, err = parseLimit(value)
		default:
			err = unknownParameter(name)
		}
		return err
	})
	return f, err
}

func (f QuarantineFilter) values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"source": f.Source, "field": f.Field} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if f.Limit != 0 {
		v.Set("limit", strconv.Itoa(f.Limit))
	}
	return v
}
