package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"semel/parser"
	"semel/storage"
)

// This file is about pages that no longer fit their rules as they did. What is kept of
// them and how it is judged is the store's; which pages count, and that a source
// which pauses hands out no jobs, stands here.

// DriftAdvice is what a person can do about a source whose pages have drifted, where
// these pages are kept.
func DriftAdvice(source string, kept Bodies) string {
	anew := "semel retry --source " + source + " --recollect asks for the pages anew: none is kept"
	switch kept {
	case BodiesFailed:
		anew = "semel quarantine release --source " + source + " reads those that failed anew; of the others no page is kept"
	case BodiesAll:
		anew = "semel reparse " + source + " reads the kept pages anew"
	}
	return "if its rules no longer fit, mend them, raise parser.version and run it again (" + anew + "); if the pages are right, semel accept " + source
}

// reading is what an attempt's page tells of how well it fits the rules; nil: the
// rules have not read it, it stands for no record, or nobody asks.
func (a *attempt) reading(r *result) *storage.Reading {
	unread := r.gone || r.record.ParserVersion == 0 || r.failure != nil && len(r.failure.problems) == 0
	if a.src.Drift.Fall == 0 || a.engine.guestOf != nil || unread {
		return nil
	}
	reading := &storage.Reading{
		Lane: a.job.Lane, Version: r.record.ParserVersion, Job: a.job.ID, Generation: a.job.Generation,
		Records: 1, Fields: unreadFields(a.src.Rules),
	}
	if r.failure != nil {
		countProblem(reading.Fields, r.failure.problems[0])
		return reading
	}
	reading.Records = max(1, len(r.output.Records)+len(r.output.Bad))
	countOutput(reading.Fields, r.output)
	return reading
}

// unreadFields are the page as a whole, and then the fields of rules.
func unreadFields(rules *parser.Rules) []storage.FieldReading {
	fields := []storage.FieldReading{{Required: true}}
	for i, name := range rules.FieldNames() {
		fields = append(fields, storage.FieldReading{Name: name, Required: rules.Required(i)})
	}
	return fields
}

// fieldNamed is the field of a name, or the page as a whole where there is none of it.
func fieldNamed(fields []storage.FieldReading, name string) *storage.FieldReading {
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i]
		}
	}
	return &fields[0]
}

// countProblem counts a page that failed for a problem: of the fields that come after
// it the page tells nothing.
func countProblem(fields []storage.FieldReading, p storage.Problem) {
	fields[0].Records, fields[0].Filled = 1, 1
	bad := fieldNamed(fields, p.Field)
	bad.Records, bad.Filled = 1, 0
}

// countOutput counts the records of a page, and the rows that were set aside: those as
// countProblem does.
func countOutput(fields []storage.FieldReading, out parser.Output) {
	for i := range fields {
		fields[i].Records, fields[i].Filled = len(out.Records), len(out.Records)
	}
	for i := range out.Records {
		for _, place := range out.Records[i].Unfilled {
			fields[1+place].Filled-- // behind the page as a whole
		}
	}
	for _, bad := range out.Bad {
		f := fieldNamed(fields, bad.Field)
		f.Records++
		if f != &fields[0] {
			fields[0].Records++
			fields[0].Filled++
		}
	}
	if fields[0].Records == 0 { // the page has no rows, and may
		fields[0].Records, fields[0].Filled = 1, 1
	}
}

// DriftPause finds pages for which no job of a source is handed out under a version of
// its rules; nil: they are. It looks at those of all its hosts.
func DriftPause(tx *storage.Tx, source string, version int, p storage.DriftPolicy) (paused *storage.Drift, err error) {
	if p.Fall == 0 || p.Failed == 0 { // whoever set these to 0 wants it to go on
		return nil, nil
	}
	err = tx.Drifts(source, version, func(d *storage.Drift) bool {
		if !d.Paused.IsZero() {
			paused = d
		}
		return paused == nil
	})
	return paused, err
}

// PausedFor says why a source pauses for pages; "": it does not.
func PausedFor(d *storage.Drift) string {
	if d.Paused.IsZero() {
		return ""
	}
	for _, is := range d.Drifted() {
		if is.Field == d.PausedFor {
			return is.String()
		}
	}
	what := "field " + d.PausedFor
	if d.PausedFor == "" {
		what = "what makes them fit its rules"
	}
	return fmt.Sprintf("too many pages of %s had lost %s by %s", d.Lane.Host, what, d.Paused.UTC().Format(time.RFC3339))
}

// driftsTold is how many fields, of all hosts of a source, are told of at once.
const driftsTold = 10

// DriftTexts say what pages of a source have less often than they did, at each of its
// hosts, and for what it pauses, that first; nil: nothing. Of many it gives the first
// few, and how many more there are.
func DriftTexts(tx *storage.Tx, source string, version int) ([]string, error) {
	var texts, others []string
	err := tx.Drifts(source, version, func(d *storage.Drift) bool {
		list, drifted := &others, d.Drifted()
		if !d.Paused.IsZero() {
			list = &texts
		}
		for _, is := range drifted {
			*list = append(*list, fmt.Sprintf("%s (an example: semel show %d)", is, is.Example))
		}
		named := func(is storage.Drifted) bool { return is.Field == d.PausedFor }
		if !d.Paused.IsZero() && !slices.ContainsFunc(drifted, named) { // it has come back, and the pause stays
			*list = append(*list, PausedFor(d))
		}
		return true
	})
	texts = append(texts, others...)
	if more := len(texts) - driftsTold; more > 0 {
		texts = append(texts[:driftsTold], fmt.Sprintf("%d more fields or hosts like these", more))
	}
	return texts, err
}

// driftPause is for which pages a source pauses. Zero: it does not.
type driftPause struct {
	lane storage.LaneID
	why  string
}

// pausesFor says why a source pauses for drift; "": it does not.
func (e *Engine) pausesFor(source string) string { return e.pauseOf(source).why }

func (e *Engine) pauseOf(source string) driftPause {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drifted[source]
}

// readPauses has sources pause, or go on, as the store says. It must not be called
// within a transaction: callers take turns, so that whoever sets a pause last has also
// looked last.
func (e *Engine) readPauses(names ...string) error {
	e.pausing.Lock()
	defer e.pausing.Unlock()
	pauses := map[string]driftPause{}
	err := e.opts.Store.View(func(tx *storage.Tx) (err error) {
		for _, name := range names {
			if pauses[name], err = e.readPause(tx, e.sources[name]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, pause := range pauses {
		e.setPause(name, pause)
	}
	return nil
}

// readPause looks first at the pages for which the source pauses: as long as it does
// for these, whatever its other hosts have is not looked through again and again.
func (e *Engine) readPause(tx *storage.Tx, src *Source) (driftPause, error) {
	version := src.Rules.Version()
	if was := e.pauseOf(src.Name); was.why != "" {
		d, err := tx.Drift(was.lane, version)
		switch {
		case err == nil && PausedFor(d) != "":
			return driftPause{d.LaneID, PausedFor(d)}, nil
		case err != nil && !errors.Is(err, storage.ErrNotFound):
			return driftPause{}, err
		}
	}
	d, err := DriftPause(tx, src.Name, version, src.Drift)
	if err != nil || d == nil {
		return driftPause{}, err
	}
	return driftPause{d.LaneID, PausedFor(d)}, nil
}

// setPause notes for what a source pauses.
func (e *Engine) setPause(source string, pause driftPause) {
	pauses := pause.why != ""
	e.mu.Lock()
	_, paused := e.drifted[source]
	if pauses {
		e.drifted[source] = pause
	} else {
		delete(e.drifted, source)
	}
	e.mu.Unlock()
	switch {
	case pauses && !paused:
		e.opts.Log.Error("a source pauses: no job of it is handed out", "source", source, "why", pause.why, "advice", DriftAdvice(source, e.opts.Bodies))
	case !pauses && paused:
		e.opts.Log.Info("a source goes on: its pages were accepted", "source", source)
	}
}

// endPauses has sources go on that a person has accepted.
func (e *Engine) endPauses() error {
	paused := e.Summary().Drifted
	if len(paused) == 0 {
		return nil
	}
	return e.readPauses(slices.Collect(maps.Keys(paused))...)
}

// tellDrift logs what a page has shown, and has its source pause for it.
func (e *Engine) tellDrift(src *Source, news storage.DriftNews) error {
	for _, is := range news.Began {
		e.opts.Log.Warn("pages have changed", "source", src.Name, "what", is.String(), "job", is.Example, "advice", DriftAdvice(src.Name, e.opts.Bodies))
	}
	if news.Paused == nil {
		return nil
	}
	return e.readPauses(src.Name)
}

// acceptDrift takes the pages of a source as they are, where they have drifted or its
// rules are others than those that they were counted by, and says what had drifted.
func acceptDrift(tx *storage.Tx, now storage.Source, changed bool) ([]string, error) {
	texts, err := DriftTexts(tx, now.Name, now.Version)
	if err != nil || len(texts) == 0 && !changed {
		return nil, err
	}
	for i := range texts {
		texts[i] = "its pages are taken as they are: " + texts[i]
	}
	return texts, tx.ForgetDrift(now.Name, now.Version)
}
