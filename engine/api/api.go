// Package api is Semel's commands as calls on one interface, with the shapes
// that users see.
//
// There is one way from a command to the store: a Client speaks HTTP with a
// Handler, which calls the Local that holds the store. The handler is that of
// the process that holds the store, reached over the socket beside it (Dial),
// or one in the same process (InProcess). A Client gives back the errors that
// Local gave: errors.Is finds the same ones.
//
// It answers for wire types, for finding what a reference means, for what a
// caller is told, and for the socket. It leaves to others: rules of the store
// (storage), running jobs (engine), text for people (cli).
//
// # Streams
//
// Lists are JSON Lines, sent as they are read. What describes a whole list, and
// that it is whole, comes after it in trailers; what went wrong on the way
// comes there too, for a caller that says "TE: trailers". For any other the
// connection is cut: a short list never looks like a whole one.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"semel/engine/intake"
	"semel/storage"
)

// Errors of a Service.
var (
	// ErrUnknownSource: neither the config nor the store knows the source.
	ErrUnknownSource = errors.New("unknown source")
	// ErrBadRequest: the call itself is wrong.
	ErrBadRequest = errors.New("bad request")
	// ErrImporting: an import under the same name is under way.
	ErrImporting = errors.New("it is being imported")
	// ErrOtherConfig: the process that holds the store works with another
	// config than the caller means.
	ErrOtherConfig = errors.New("the semel run that holds the store works with another config")
)

// Service is every command that looks at a store or changes it.
type Service interface {
	// Status is the whole state of the store, with an estimate of what that many
	// more targets of each source would take; 0: without.
	Status(ctx context.Context, estimate int64) (Status, error)
	// Jobs calls fn with the jobs that match, oldest first. Error:
	// ErrUnknownSource.
	Jobs(ctx context.Context, f JobFilter, fn func(Job) error) error
	// Job is one job's whole story; ref is its id or its key. Error:
	// storage.ErrNotFound.
	Job(ctx context.Context, ref string) (JobStory, error)
	// Retry sends failed jobs, and complete ones to be recollected, back to
	// pending, and calls fn with each that it changed. An error of fn ends no change under way: it is given at the end.
	// Errors: storage.ErrNotFound, storage.ErrTransition, ErrUnknownSource.
	Retry(ctx context.Context, s Selection, fn func(Job) error) error
	// Cancel fails jobs that wait, and calls fn as Retry does. Errors:
	// storage.ErrNotFound, storage.ErrTransition, ErrUnknownSource.
	Cancel(ctx context.Context, s Selection, fn func(Job) error) error
	// Export writes a source's observations, in the byte order of (record key,
	// country, window, version). Errors: ErrUnknownSource, ErrBadRequest.
	Export(ctx context.Context, r ExportRequest, w io.Writer) (ExportResult, error)
	// Verify compares everything in the store with everything, and calls fn
	// with each place where it contradicts itself. Writing waits meanwhile.
	Verify(ctx context.Context, fn func(Breach) error) (VerifyResult, error)
	// Checksums says what each source holds, by name.
	Checksums(ctx context.Context) (map[string]SourceSum, error)
	// VerifyTwice parses all kept pages of a source again in a scratch store,
	// and calls fn with each observation that comes out differently. Error:
	// ErrUnknownSource.
	VerifyTwice(ctx context.Context, source string, fn func(Unlike) error) (TwiceResult, error)
	// Backup copies the store and its kept pages to the file at path, which is
	// of the process that holds the store, and to a folder beside it.
	Backup(ctx context.Context, path string) (BackupResult, error)
	// Submit makes one job, or finds it. Errors: ErrUnknownSource, ErrBadRequest,
	// ErrInFlight, engine.ErrGuard, storage.ErrKeyReused.
	Submit(ctx context.Context, s Submission) (Submitted, error)
	// Import makes jobs of the rows of a file, which is read by the process that
	// holds the store, and calls fn with what there is to tell meanwhile. When ctx
	// ends it stops behind a whole chunk. Errors: ErrUnknownSource, ErrBadRequest,
	// ErrImporting.
	Import(ctx context.Context, r ImportRequest, fn func(ImportNews) error) (ImportResult, error)
	// Changes gives a page of what was created or got new content in a source
	// after a cursor. Errors: ErrUnknownSource, ErrBadRequest.
	Changes(ctx context.Context, r ChangesRequest) (Changes, error)
	// FileCursor says how far the changes of a source are appended to a file, nil
	// where none was begun.
	FileCursor(ctx context.Context, source, path string) (*FileCursor, error)
	// MoveFileCursor acknowledges what was appended to a file and is durable
	// there. Errors: storage.ErrCursorMoved, ErrBadRequest.
	MoveFileCursor(ctx context.Context, source string, m FileMove) error
	// Accept takes a source as the config has it now, whatever it was. Errors:
	// ErrUnknownSource, ErrOtherConfig.
	Accept(ctx context.Context, r AcceptRequest) (AcceptResult, error)
	// Compare collects past windows of a source again in a scratch store, and
	// calls fn with each row that is not what the store has. Errors:
	// ErrUnknownSource, ErrBadRequest (a request of the source must not be
	// repeated), storage.ErrNotFound (there are no jobs of these windows).
	Compare(ctx context.Context, r CompareRequest, fn func(Difference) error) (CompareResult, error)
	// Backfill makes the jobs of past windows of a source's schedule, and calls fn
	// with each target that cannot become a job. An error of fn ends nothing: it is
	// given at the end. Errors: ErrUnknownSource, engine.ErrNoSchedule.
	Backfill(ctx context.Context, r BackfillRequest, fn func(BadTarget) error) (BackfillResult, error)
	// Quarantine calls fn with the pages that did not fit their rules, by their
	// jobs, oldest first. Error: ErrUnknownSource.
	Quarantine(ctx context.Context, f QuarantineFilter, fn func(Quarantined) error) error
	// QuarantinedJob is what a job has in quarantine; ref is its id or its key.
	// Error: storage.ErrNotFound.
	QuarantinedJob(ctx context.Context, ref string) (Quarantined, error)
	// QuarantinedPage writes the page itself, as the rules see it. Error:
	// storage.ErrNotFound.
	QuarantinedPage(ctx context.Context, ref string, w io.Writer) error
	// ReleasePages reads pages again, by today's rules, and calls fn with what became
	// of each. Errors: storage.ErrNotFound, ErrUnknownSource, ErrBadRequest,
	// ErrOtherConfig, engine.ErrGuard.
	ReleasePages(ctx context.Context, s PageSelection, fn func(Released) error) error
	// DiscardPages drops pages from the quarantine, and calls fn with each: their jobs
	// stay as they are. Errors: storage.ErrNotFound, ErrUnknownSource, ErrBadRequest.
	DiscardPages(ctx context.Context, s PageSelection, fn func(Quarantined) error) error
	// Reparse reads the kept pages of a source's past jobs again, by today's rules,
	// commits what they give, and calls fn with each that gives something else or has
	// no page, and with how far it is. Errors: ErrUnknownSource, ErrOtherConfig,
	// engine.ErrGuard.
	Reparse(ctx context.Context, r ReparseRequest, fn func(ReparseNews) error) (ReparseResult, error)
	// Runs calls fn with the runs that match, newest first. Error:
	// ErrUnknownSource.
	Runs(ctx context.Context, f RunFilter, fn func(Run) error) error
	// ReleaseRun promotes the rows of a run that is held; ref is its number or
	// its key. Errors: storage.ErrNotFound, storage.ErrNotHeld.
	ReleaseRun(ctx context.Context, ref string) (Run, error)
	// DiscardRun drops them: the rows that stood before stand. Errors:
	// storage.ErrNotFound, storage.ErrNotHeld.
	DiscardRun(ctx context.Context, ref string) (Run, error)
	// Outbox calls fn with the events that match, each with one sink, in the order
	// of their commits. Error: ErrUnknownSink.
	Outbox(ctx context.Context, f OutboxFilter, fn func(Dispatched) error) error
	// RetryEvents sends dead events back to pending, under the same ids, and
	// starts the sinks that it names or changes where they are stopped. Errors:
	// ErrBadRequest, ErrUnknownSink, storage.ErrNotFound, storage.ErrTransition.
	RetryEvents(ctx context.Context, s EventSelection) (EventsChanged, error)
	// DiscardEvents gives up dead events, and pending ones that are named. Errors
	// as those of RetryEvents.
	DiscardEvents(ctx context.Context, s EventSelection) (EventsChanged, error)
	// Event is an event as sinks get it; ref is its number or its id, of which the
	// newest counts. Error: storage.ErrNotFound.
	Event(ctx context.Context, ref string) (json.RawMessage, error)
}

// JobFilter says which jobs to list; zero fields let all through.
type JobFilter struct {
	Source   string
	State    storage.JobState
	Category storage.Category
	Window   intake.WindowArg // with Source, by its schedule; of jobs without a window none
	Limit    int              // 0: no limit
}

// Selection names jobs one by one, all of them or none, or all that match.
type Selection struct {
	Refs     []string         `json:"refs,omitempty"`   // ids or keys
	Source   string           `json:"source,omitempty"` // where Refs is empty: the jobs of this source that can be changed so
	Category storage.Category `json:"category,omitempty"`
	From     time.Time        `json:"from,omitzero"` // of these, only those whose windows start in [From, To); both zero: all
	To       time.Time        `json:"to,omitzero"`
	// Recollect makes Retry take complete jobs, too. Those of a source are left
	// out where a request of theirs must not be repeated, and where their key is
	// that of another version of the rules.
	Recollect bool `json:"recollect,omitempty"`
}

// Breach is one place where the store contradicts itself.
type Breach struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"` // in the bucket, hex
	What   string `json:"what"`
}

// VerifyResult says what was looked at.
type VerifyResult struct {
	Breaches int `json:"breaches"`
}

// SourceSum is what a source holds, to be compared with another time.
type SourceSum struct {
	Rows     int64  `json:"rows"`               // observations
	Checksum string `json:"checksum,omitempty"` // of all of them (storage.Checksums); "": there are none
}

// Unlike is an observation that the same page gave differently.
type Unlike struct {
	Key  string `json:"key"` // of the observation, or of the job whose page no longer parses
	What string `json:"what"`
}

// TwiceResult says what was read again.
type TwiceResult struct {
	Pages    int    `json:"pages"`    // read again
	Rows     int    `json:"rows"`     // observations compared
	Unlike   int    `json:"unlike"`   // of those
	Missing  int    `json:"missing"`  // complete jobs without a kept page, under another version of the rules, or whose rows are held or discarded
	Checksum string `json:"checksum"` // of what came out of the pages
}

// BackupResult is what a backup holds.
type BackupResult struct {
	Path       string `json:"path"`
	Bytes      int64  `json:"bytes"` // of the store
	Segments   int    `json:"segments"`
	PagesBytes int64  `json:"pages_bytes"` // of kept pages
}

// ExportRequest says what to export and how.
type ExportRequest struct {
	Source   string
	DataOnly bool   // records without _meta
	Window   string // only rows whose window begins in it: an instant, a date or A..B; "": all
	Latest   bool   // of rows that differ in window and version alone, only the newest
	Format   Format // "": FormatJSONL
}

// Format is how rows are written.
type Format string

// The formats of an export.
const (
	FormatJSONL Format = "jsonl" // JSON Lines
	FormatCSV   Format = "csv"   // RFC 4180, lines ended by \n, with a header
)

// Formats are all formats.
var Formats = []Format{FormatJSONL, FormatCSV}

// ExportResult describes what was written.
type ExportResult struct {
	Rows        int        `json:"rows"`         // without the header of a table
	FirstWindow *time.Time `json:"first_window"` // of the rows written; nil: none has a window
	LastWindow  *time.Time `json:"last_window"`
	LeftOut     []string   `json:"left_out,omitempty"` // fields that rows had and the table has no column for
}

// ChangesRequest says which changes to give.
type ChangesRequest struct {
	Source   string
	Cursor   string // of an earlier page; "": from the beginning
	Limit    int    // lines, 1 to MaxChanges
	DataOnly bool   // records without _meta; observations marked gone have no line
}

// MaxChanges is the largest ChangesRequest.Limit.
const MaxChanges = 10_000

// Changes is a page of changes: each observation as it is now, once, in the
// order of its last change; what an older schema wrote comes first. That the same
// content was collected again is no change, though its window in _meta moves on.
// Only where nothing more has changed it has no rows. Whoever asks on with its cursor sees
// every observation again that changes later.
type Changes struct {
	ExportResult
	Cursor string `json:"cursor"` // text that only the next request understands; it stays good across restarts
	Lines  []byte `json:"-"`      // JSON Lines
}

// FileCursor says how far a file has come, and what it was then.
type FileCursor struct {
	Cursor      string     `json:"cursor"` // as in Changes
	Bytes       uint64     `json:"bytes"`  // of the file that are acknowledged
	Rows        uint64     `json:"rows"`
	FirstWindow *time.Time `json:"first_window"`
	LastWindow  *time.Time `json:"last_window"`
	Sum         []byte     `json:"sum"`  // state of a SHA-256 over the file
	Tail        []byte     `json:"tail"` // SHA-256 of its end
	DataOnly    bool       `json:"data_only"`
}

// FileMove moves a file's cursor from where the caller saw it.
type FileMove struct {
	Path string      `json:"path"` // absolute
	From *FileCursor `json:"from"` // null: there is none
	To   FileCursor  `json:"to"`
}

// Job is a job as lists show it. Times are null where there is none.
type Job struct {
	ID         uint64            `json:"id"`
	Key        string            `json:"key"`
	Source     string            `json:"source"`
	State      storage.JobState  `json:"state"`
	Generation uint32            `json:"generation"`
	Attempts   uint32            `json:"attempts"`
	Category   *storage.Category `json:"category"`
	NextAt     *time.Time        `json:"next_at"`
	Window     *time.Time        `json:"window"`
	Country    *string           `json:"country"`
	URL        string            `json:"url"`
}

// JobStory is a job with all that happened to it.
type JobStory struct {
	Job
	Reason     string            `json:"reason,omitempty"`
	Next       string            `json:"next"` // what comes next, for people
	Scope      string            `json:"scope,omitempty"`
	Version    int               `json:"parser_version"` // of the rules when the job was made, or that read its page
	Priority   int8              `json:"priority"`
	Vars       map[string]string `json:"vars,omitempty"`
	Created    time.Time         `json:"created"`
	Updated    time.Time         `json:"updated"`
	FirstClaim *time.Time        `json:"first_claim"`
	Owner      string            `json:"owner,omitempty"`
	LeaseUntil *time.Time        `json:"lease_until"`
	Rescues    uint32            `json:"rescues"`
	BytesUp    int64             `json:"bytes_up"`
	BytesDown  int64             `json:"bytes_down"`
	History    []Attempt         `json:"history"`
	Events     []JobEvent        `json:"events"` // of its outcomes that retention has not forgotten
	Quarantine *Quarantined      `json:"quarantine,omitempty"`
}

// Attempt is one execution of a job. Its number is the generation it ran
// under; released and rescued ones do not count against limits.attempts.
type Attempt struct {
	Number        uint32            `json:"attempt"`
	Generation    uint32            `json:"generation"`
	Kind          string            `json:"kind,omitempty"` // "reparse": it fetched nothing and read a page that was kept
	Outcome       string            `json:"outcome"`
	Category      *storage.Category `json:"category"`
	Reason        string            `json:"reason,omitempty"`
	Step          string            `json:"step,omitempty"` // of a workflow, where it ended
	Phase         string            `json:"phase"`
	Status        int               `json:"status"`
	ConnectStatus int               `json:"connect_status"`
	ProxyCode     string            `json:"proxy_code,omitempty"`
	BytesUp       int64             `json:"bytes_up"`
	BytesDown     int64             `json:"bytes_down"`
	FinalURL      string            `json:"final_url,omitempty"`
	Endpoint      string            `json:"endpoint,omitempty"`
	Country       string            `json:"country,omitempty"`
	Session       string            `json:"session,omitempty"`
	Page          string            `json:"page,omitempty"` // SHA-256 of the page kept with it, hex
	ParserVersion int               `json:"parser_version"`
	Records       int               `json:"records"`
	Owner         string            `json:"owner"`
	Start         time.Time         `json:"start"`
	End           time.Time         `json:"end"`
	FetchedAt     *time.Time        `json:"fetched_at,omitempty"` // of KindReparse: when its page was
	NextAt        *time.Time        `json:"next_at"`
}

// Status is the state of the whole store.
type Status struct {
	Sources    map[string]SourceStatus `json:"sources"`
	Outbox     map[string]SinkStatus   `json:"outbox"`
	Proxies    map[string]ProxyStatus  `json:"proxies"`
	Hosts      map[string]Traffic      `json:"hosts"`      // of jobs, by today's traffic (UTC): the 20 that moved most
	Quarantine map[string]int64        `json:"quarantine"` // jobs of each source that have a page there; a source without is left out
	Warnings   []string                `json:"warnings"`
	Run        *Owner                  `json:"run"` // the semel run that holds the store; null: none does
}

// SourceStatus are one source's figures. Jobs are counted by where they stand
// now: those of past windows that retention has forgotten are in no state. The
// rest, averages too, is since the store was made.
type SourceStatus struct {
	Pending   int64 `json:"pending"`
	Running   int64 `json:"running"`
	Retryable int64 `json:"retryable"`
	Complete  int64 `json:"complete"`
	Failed    int64 `json:"failed"`

	Observations           int64                      `json:"observations"`
	Attempts               int64                      `json:"attempts"`
	AttemptsPerComplete    float64                    `json:"attempts_per_complete"`
	Recovered              int64                      `json:"recovered"`
	CompletedAfterRecovery int64                      `json:"completed_after_recovery"`
	DuplicatesRejected     int64                      `json:"duplicates_rejected"`
	Unchanged              int64                      `json:"unchanged"`
	StaleCommits           int64                      `json:"stale_commits"`
	BytesUp                int64                      `json:"bytes_up"`
	BytesDown              int64                      `json:"bytes_down"`
	BytesWasted            int64                      `json:"bytes_wasted"` // both ways, of attempts that did not complete; since schema 3
	BytesPerComplete       float64                    `json:"bytes_per_complete"`
	Cost                   *Money                     `json:"cost"` // of all attempts, at today's prices; null: a proxy that was used has no price, two have different currencies, or none was used
	CostPerComplete        *Money                     `json:"cost_per_complete"`
	Estimate               *Estimate                  `json:"estimate,omitempty"` // where it was asked for
	AttemptP50             int64                      `json:"attempt_p50_ms"`
	AttemptP99             int64                      `json:"attempt_p99_ms"`
	Retries                map[storage.Category]int64 `json:"retries"`
	Failures               map[storage.Category]int64 `json:"failures"`
}

// Total is the number of jobs.
func (s SourceStatus) Total() int64 {
	return s.Pending + s.Running + s.Retryable + s.Complete + s.Failed
}

// SinkStatus is one sink: how many events wait for it and were given up, and how
// its deliveries have ended since the store was made.
type SinkStatus struct {
	Pending       int64      `json:"pending"` // events
	Delivered     int64      `json:"delivered"`
	Deduplicated  int64      `json:"deduplicated"`   // deliveries of what it had before
	Ambiguous     int64      `json:"ambiguous"`      // that may have arrived without a word
	Dead          int64      `json:"dead"`           // events
	Retried       int64      `json:"retried"`        // deliveries that have not arrived
	OldestPending *time.Time `json:"oldest_pending"` // when the first of the pending events was committed; null: there is none
	Stopped       *time.Time `json:"stopped"`        // since when it wants nothing more; null: it is not stopped
	StopReason    string     `json:"stop_reason,omitempty"`
	Paused        string     `json:"paused,omitempty"` // why it is taken for down; "": it is not, or no run goes on
	PausedUntil   *time.Time `json:"paused_until,omitempty"`
}

// ProxyStatus is one configured proxy. Whether it is paused is known while a
// run goes on.
type ProxyStatus struct {
	Endpoint    string     `json:"endpoint"`         // redacted
	Paused      string     `json:"paused,omitempty"` // why; "": it is not
	PausedUntil *time.Time `json:"paused_until,omitempty"`

	Traffic           // of all attempts since schema 3
	Today     Traffic `json:"today"`      // UTC
	Budget    *int64  `json:"budget"`     // bytes a day, both ways; null: none
	Cost      *Money  `json:"cost"`       // of all attempts, at today's price; null: it has none
	CostToday *Money  `json:"cost_today"` //
}
