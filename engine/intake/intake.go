// Package intake is every way a job comes in: it reads targets, fills the
// source's templates with them, and makes jobs with deterministic keys.
//
// It answers for reading target files as a stream, for what a row must hold, and
// for how a row becomes a URL, a request's body and a key. It leaves the queue to
// the engine: nothing here writes to the store.
//
// Invariants: memory does not grow with the file; a bad row is one *RowError and
// reading goes on; the same source, target and window always give the same job,
// and no clock is asked.
package intake

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"semel/engine/cron"
	"semel/parser"
	"semel/storage"
)

// MaxKeyBytes is the longest text of a job's key. It is far over any real URL,
// and far under the 32 KiB that a key of the store may have.
const MaxKeyBytes = 8192

// maxHostBytes is the longest name that DNS knows (RFC 1035 §2.3.4).
const maxHostBytes = 253

// Source is how one source's targets become jobs. It is not changed once made.
type Source struct {
	Name          string
	URL           Template // zero: the variable url as it stands
	Key           Template // zero: the normalised URL
	Country       Template // expands to an ISO-2 code, or to ""
	Scope         Template
	Identity      Identity
	ParserVersion int            // at least 1
	Priority      int8           // of its jobs; higher first
	Schedule      *cron.Schedule // when its windows begin; nil: it has none
	Windowed      bool           // its jobs need a window: their rows replace those of a window
}

// Identity says which parts count in a job's key; the target always does.
type Identity struct {
	Country, Window, Scope, Parser bool
}

// Target is one thing to collect: its variables, and where they stand.
type Target struct {
	Vars    Vars
	URL     string // given by hand in the place of the source's template; "": none
	Country string // the same for its country
	File    string // "" for targets that no file holds
	Line    int    // first line of its row, from 1; 0: unknown
}

// Job is what a target in a window becomes.
type Job struct {
	Key     storage.JobKey
	URL     string    // sent as it stands, never normalised
	Country string    // ISO-2, upper case; "": any
	Host    string    // that pacing belongs to (HostOf)
	Window  time.Time // its start, UTC; zero: none
	Scope   string
	Vars    Vars // the target's own
}

// RowError is one row that cannot become a job.
type RowError struct {
	File   string // "" for targets that no file holds
	Line   int    // from 1; 0: unknown
	Reason string // a sentence part for people; holds no URL, which may hold a login
}

func (e *RowError) Error() string {
	switch {
	case e.File != "" && e.Line > 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
	case e.File != "":
		return e.File + ": " + e.Reason
	case e.Line > 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return e.Reason
}

// ByHand is the target that somebody names by its URL (in place of the source's
// template; "": none), by variables, or by both.
func (s *Source) ByHand(url string, vars Vars) Target {
	if url != "" && s.URL.IsZero() {
		// As a row of a file of URLs has it, so that templates may use {url}.
		return Target{Vars: append(vars, Var{"url", url})}
	}
	return Target{Vars: vars, URL: url}
}

// Job makes the job of a target in a window (its start, cut to whole seconds;
// zero: none). Its error is a *RowError.
func (s *Source) Job(t Target, window time.Time) (Job, error) {
	job, err := s.job(t)
	if err != nil {
		return Job{}, &RowError{File: t.File, Line: t.Line, Reason: err.Error()}
	}
	if !window.IsZero() {
		job.Window = window.UTC().Truncate(time.Second)
	}
	job.Key = s.identify(job)
	if n := len(job.Key.String()); n > MaxKeyBytes {
		return Job{}, &RowError{File: t.File, Line: t.Line, Reason: fmt.Sprintf("the key has %d bytes, more than %d", n, MaxKeyBytes)}
	}
	return job, nil
}

// ErrNoWindow: jobs of the source need a window, and there is none.
var ErrNoWindow = errors.New(`write = "replace" needs a window: name one (--window), or give the source a schedule`)

// CheckWindow refuses a window that jobs of the source cannot have. Error:
// ErrNoWindow.
func (s *Source) CheckWindow(window time.Time) error {
	if s.Windowed && window.IsZero() {
		return ErrNoWindow
	}
	return nil
}

// NewJob is Job in the form in which the store takes it, for a window that
// CheckWindow lets through.
func (s *Source) NewJob(t Target, window time.Time) (storage.NewJob, error) {
	if err := s.CheckWindow(window); err != nil {
		return storage.NewJob{}, &RowError{File: t.File, Line: t.Line, Reason: err.Error()}
	}
	j, err := s.Job(t, window)
	if err != nil {
		return storage.NewJob{}, err
	}
	n := storage.NewJob{
		Key: j.Key, Country: j.Country, Window: j.Window, Scope: j.Scope, Version: s.ParserVersion,
		URL: j.URL, Host: j.Host, Priority: s.Priority,
	}
	n.Vars = slices.Grow(n.Vars, len(j.Vars))
	for _, v := range j.Vars {
		n.Vars = append(n.Vars, storage.Var(v))
	}
	return n, nil
}

// job is Job without window and identity: its key holds the target only.
func (s *Source) job(t Target) (Job, error) {
	for _, v := range t.Vars {
		if !utf8.ValidString(v.Value) {
			return Job{}, fmt.Errorf("variable %q is not UTF-8", v.Name)
		}
	}
	job := Job{Vars: t.Vars}
	var err error
	if job.URL, job.Host, err = s.url(t); err != nil {
		return Job{}, fmt.Errorf("url: %w", err)
	}
	if job.Key.Target, err = s.targetKey(job.URL, t.Vars); err != nil {
		return Job{}, fmt.Errorf("key: %w", err)
	}
	if job.Country, err = s.country(t); err != nil {
		return Job{}, fmt.Errorf("country: %w", err)
	}
	if job.Scope, err = s.Scope.Expand(t.Vars, Plain); err != nil {
		return Job{}, fmt.Errorf("scope: %w", err)
	}
	return job, nil
}

// url is the text to request, and its host.
func (s *Source) url(t Target) (raw, host string, err error) {
	raw = t.URL
	switch {
	case raw != "":
	case s.URL.IsZero():
		var ok bool
		if raw, ok = t.Vars.Get("url"); !ok {
			return "", "", errors.New(`variable "url" is missing`)
		}
	default:
		if raw, err = expandFull(s.URL, t.Vars, URL); err != nil {
			return "", "", err
		}
	}
	u, err := parseURL(raw)
	if err != nil {
		return "", "", err
	}
	return raw, HostOf(u), nil
}

// targetKey is the target's part of the key.
func (s *Source) targetKey(rawURL string, vars Vars) (string, error) {
	if s.Key.IsZero() {
		return parser.NormalizeURL(rawURL)
	}
	return expandFull(s.Key, vars, Plain)
}

// expandFull expands a template in which no variable may be blank: a blank one
// would make one job of rows that have nothing in common.
func expandFull(t Template, vars Vars, mode Mode) (string, error) {
	for _, name := range t.Vars() {
		if value, ok := vars.Get(name); ok && strings.TrimSpace(value) == "" {
			return "", fmt.Errorf("variable %q is empty", name)
		}
	}
	return t.Expand(vars, mode)
}

// country gives an ISO-2 code in upper case, or "" for any country.
func (s *Source) country(t Target) (text string, err error) {
	if text = t.Country; text == "" {
		if text, err = s.Country.Expand(t.Vars, Plain); err != nil {
			return "", err
		}
	}
	text = strings.ToUpper(strings.TrimSpace(text))
	if text != "" && !ValidCountry(text) {
		return "", fmt.Errorf("%q is not a two-letter country code", text)
	}
	return text, nil
}

// ValidCountry reports whether a text has the form of an ISO-2 code in upper
// case.
func ValidCountry(text string) bool {
	return len(text) == 2 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'A' && text[1] <= 'Z'
}

// CheckURL accepts what may be requested. Its messages leave the URL out, since
// it may hold a login.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

func parseURL(raw string) (*url.URL, error) {
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("holds a space or a control character")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("is not a URL")
	}
	return u, checkParts(u)
}

func checkParts(u *url.URL) error {
	switch {
	case u.Scheme == "":
		return errors.New("is not absolute: it must start with http:// or https://")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("scheme %q is neither http nor https", u.Scheme)
	case u.User != nil:
		return errors.New("holds a user name or password")
	case u.Hostname() == "":
		return errors.New("has no host")
	case len(u.Hostname()) > maxHostBytes:
		return fmt.Errorf("host of %d bytes, a name has at most %d", len(u.Hostname()), maxHostBytes)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("port %s is not between 1 and 65535", port)
		}
	}
	return nil
}

// HostOf is the host that pacing belongs to, as a lane names it: lower case, in
// ASCII as net/http asks for it, with the port where it is not the scheme's own.
func HostOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if port := u.Port(); u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	plain := !strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf })
	name := strings.ToLower(u.Hostname())
	if plain || len(name) > maxHostBytes { // encoding costs the square of the length
		return host
	}
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		host = ascii + strings.TrimPrefix(host, name)
	}
	return host
}

// identify puts into the key what the source's identity names.
func (s *Source) identify(j Job) storage.JobKey {
	key := storage.JobKey{Source: s.Name, Target: j.Key.Target}
	if s.Identity.Country {
		key.Country = j.Country
	}
	if s.Identity.Window {
		key.Window = j.Window
	}
	if s.Identity.Scope {
		key.Scope = j.Scope
	}
	if s.Identity.Parser {
		key.Version = s.ParserVersion
	}
	return key
}

// KeyPart is one part of a job's key, for people.
type KeyPart struct {
	Name    string // source, target, country, window, scope, parser
	Value   string // unescaped; "" for none
	Setting string // the config setting behind it
	Counts  bool   // whether the source's identity lets it into the key
}

// KeyParts tells a job's key part by part, in the key's order, also the parts
// that the identity leaves out.
func (s *Source) KeyParts(j Job) []KeyPart {
	window := ""
	if !j.Window.IsZero() {
		window = j.Window.Format(time.RFC3339)
	}
	key := s.setting("key", s.Key)
	if s.Key.IsZero() {
		key = "the normalised URL, since there is no key"
	}
	return []KeyPart{
		{"source", s.Name, "[source." + s.Name + "]", true},
		{"target", j.Key.Target, key, true},
		{"country", j.Country, s.setting("country", s.Country), s.Identity.Country},
		{"window", window, s.scheduleSetting(), s.Identity.Window},
		{"scope", j.Scope, s.setting("scope", s.Scope), s.Identity.Scope},
		{"parser", "v" + strconv.Itoa(s.ParserVersion), fmt.Sprintf("parser.version = %d", s.ParserVersion), s.Identity.Parser},
	}
}

// scheduleSetting shows what windows come from.
func (s *Source) scheduleSetting() string {
	if s.Schedule == nil {
		return "none: the source has no schedule"
	}
	return fmt.Sprintf("schedule = %q, timezone = %q", s.Schedule, s.Schedule.Zone())
}

// setting shows a setting as the config has it.
func (s *Source) setting(name string, t Template) string {
	if t.IsZero() {
		return name + " (not set)"
	}
	return fmt.Sprintf("%s = %q", name, t.String())
}
