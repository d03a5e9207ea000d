package cli

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"semel/engine"
	"semel/engine/config"
	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/engine/scaffold"
	"semel/parser"
	"semel/storage"
)

// initTimeout is how long init waits for a page: as a source's default timeout.
const initTimeout = time.Minute

func (a *app) initCommand() *cobra.Command {
	var file string
	cmd := a.command(&cobra.Command{
		Use:   "init [URL | --file PAGE]",
		Short: "Write a config to begin with, from a page's own data",
		Long: `Print a config to begin with. With a URL, or with --file a saved page ("-" for
stdin), it has the fields that the page itself offers: in its JSON-LD, microdata,
<meta>, embedded JSON, tables, repeated rows and elements. Each field has been
tried on the page, and stands there with the value that it gave: semel check
accepts the config, and semel try shows these values.

The page is fetched directly, without a proxy, by its robots.txt. The address of
a saved page is its canonical link; where it has none, a placeholder stands for
it. Settings of [engine] that are needed for fetching are those of the file that
-c names, of no other: they are put into the new config, too. No file is written.

` + exits(exitDone, exitFailed, exitUsage, exitConfig),
		Example: "  semel init > semel.toml\n  semel init https://shop.example/item/1 > semel.toml\n  semel init --file saved.html > semel.toml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("argument %q is too much", args[1])
			}
			return nil
		},
	}, func(ctx context.Context, args []string) error { return a.init(ctx, strings.Join(args, ""), file) })
	cmd.Flags().StringVar(&file, "file", "", "look at this saved `PAGE` (.json, else HTML) instead of fetching one")
	return cmd
}

func (a *app) init(ctx context.Context, address, file string) error {
	switch {
	case address != "" && file != "":
		return usage("leave one of them out", "a URL and --file are two pages")
	case address == "" && file == "":
		return a.showInit(scaffold.Starter, nil)
	}
	if err := intake.CheckURL(address); address != "" && err != nil {
		return usage("a page is named as https://shop.example/item/1", "the URL %w", err)
	}
	c := config.Default()
	if a.config != "" {
		var err error
		if c, err = loadConfigFile(a.config, nil); err != nil {
			return err
		}
	}
	page, err := a.initPage(ctx, c, address, file)
	if err != nil {
		return err
	}
	proposal, err := scaffold.Propose(page)
	if err != nil {
		return &fault{exitFailed, err, pageHint(storage.CategoryContentType, file)}
	}
	for _, note := range proposal.Notes {
		a.notef("note: %s", note)
	}
	return a.showInit(proposal.TOML(engineSettings(c)...), proposal)
}

// initPage reads the page or fetches it. One that a run would not read is an
// error: a config of an error page would be no use.
func (a *app) initPage(ctx context.Context, c *config.Config, address, file string) (scaffold.Page, error) {
	e, err := a.initEngine(c)
	if err != nil {
		return scaffold.Page{}, err
	}
	defer e.Close()
	var trial engine.Trial
	var page *fetch.Page
	if file == "" {
		trial, page, err = e.FetchPage(ctx, initSource, intake.Target{URL: address})
	} else {
		trial, page, err = a.savedPage(ctx, e, c, file)
	}
	switch {
	case err != nil:
		return scaffold.Page{}, err
	case ctx.Err() != nil:
		return scaffold.Page{}, context.Cause(ctx)
	case trial.Category != "":
		return scaffold.Page{}, &fault{exitFailed, fmt.Errorf("%s: %s", trial.Category, plain(trial.Reason)), pageHint(trial.Category, file)}
	}
	return scaffold.Page{Body: page.Body, ContentType: page.ContentType, URL: address, FinalURL: page.FinalURL}, nil
}

// initSource is the source of initEngine.
const initSource = "init"

// initEngine tries pages as for a source without settings.
func (a *app) initEngine(c *config.Config) (*engine.Engine, error) {
	rules, err := parser.Compile(parser.Spec{})
	if err != nil {
		return nil, err
	}
	opts := engineOptions(c, nil, slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	opts.Proxies = nil
	opts.Sources = []engine.Source{{
		Source: intake.Source{Name: initSource}, Rules: rules, Timeout: initTimeout,
		Limits: engine.Limits{Attempts: 1, Time: initTimeout, Bytes: 2 * c.Engine.MaxBodyBytes, Rescues: 1}, // the cap of a body is engine.max_body
	}}
	return engine.New(opts)
}

// savedPage reads a saved page, and judges it as a fetched one.
func (a *app) savedPage(ctx context.Context, e *engine.Engine, c *config.Config, file string) (engine.Trial, *fetch.Page, error) {
	body, err := a.readPage(file, c.Engine.MaxBodyBytes)
	if err != nil {
		return engine.Trial{}, nil, err
	}
	page := filePage(file, body)
	trial, err := e.TryPage(ctx, initSource, intake.Target{URL: scaffold.Placeholder}, page)
	return trial, page, err
}

const (
	savedHint      = "a page that was saved in a browser will do: semel init --file PAGE"
	unreadableHint = "rules read HTML and JSON; where a script fills the page, save what a browser shows of it: semel init --file PAGE"
	fileHint       = "give a file with the page's HTML or JSON, saved from a browser that shows it"
)

// pageHint is what a person can do about a page that init cannot have; file "": it
// was fetched.
func pageHint(c storage.Category, file string) string {
	if file != "" {
		return fileHint
	}
	switch c {
	case storage.CategoryNotFound:
		return "look at the address in a browser: a config of an error page would be no use"
	case storage.CategoryContentType:
		return unreadableHint
	case storage.CategoryTooLarge, storage.CategoryBudgetExhausted, storage.CategoryConfig:
		return "the setting can be changed in a config that -c names"
	}
	return savedHint
}

// filePage is a saved page, whose name says what it is.
func filePage(path string, body []byte) *fetch.Page {
	if strings.EqualFold(filepath.Ext(path), ".json") {
		return fetch.FilePage(body, "application/json")
	}
	return fetch.FilePage(body, "text/html")
}

// engineSettings are the settings that decide what a page is fetched as, where
// they are not the default.
func engineSettings(c *config.Config) []string {
	var lines []string
	was := config.Default().Engine
	if c.Engine.UserAgent != was.UserAgent {
		lines = append(lines, fmt.Sprintf("user_agent = %q", c.Engine.UserAgent))
	}
	if c.Engine.Robots != was.Robots {
		lines = append(lines, fmt.Sprintf("robots = %t", c.Engine.Robots))
	}
	if c.Engine.AllowPrivate != was.AllowPrivate {
		lines = append(lines, fmt.Sprintf("allow_private = %t", c.Engine.AllowPrivate))
	}
	if c.Engine.MaxBodyBytes != was.MaxBodyBytes {
		lines = append(lines, fmt.Sprintf(`max_body = "%dB"`, c.Engine.MaxBodyBytes))
	}
	return lines
}

// started is what init prints with --json.
type started struct {
	Source string   `json:"source"`
	URL    string   `json:"url"`
	Rows   bool     `json:"rows"` // one record for each of many rows
	Fields []string `json:"fields"`
	Config string   `json:"config"`
}

// showInit prints a config; of what was proposed, unless it is the starter.
func (a *app) showInit(text string, proposal *scaffold.Proposal) error {
	if !a.json {
		a.printf("%s", text)
		return nil
	}
	out := started{Source: "items", URL: "https://www.example.com/item/{id}", Fields: []string{"title", "price"}, Config: text}
	if proposal != nil {
		out = started{Source: proposal.Source, URL: proposal.URL, Rows: proposal.Spec.Rows != nil, Config: text}
		for _, f := range proposal.Spec.Fields {
			out.Fields = append(out.Fields, f.Name)
		}
	}
	return a.line(out)
}
