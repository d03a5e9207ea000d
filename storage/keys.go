package storage

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// bucket numbers a top-level bucket; bucketNames has its name.
type bucket int

const (
	bucketMeta bucket = iota
	bucketSource
	bucketLane
	bucketLaneName
	bucketJob
	bucketKey
	bucketReady
	bucketWait
	bucketLease
	bucketAttempt
	bucketObservation
	bucketEvent
	bucketOutbox
	bucketCounter
	bucketRobots
	bucketHost
	bucketPage
	bucketSegment
	bucketValidator
	bucketRun
	bucketRunKey
	bucketIdempotency
	bucketIdempotencyJob
	bucketSchedule
	bucketList
	bucketChange
	bucketCursor
	bucketImport
	bucketImportChunk
	bucketStaged
	bucketLive
	bucketDispatch
	bucketDead
	bucketSink
	bucketJobEvent
	bucketQuarantine
	bucketDrift
	bucketCount
)

var bucketNames = [bucketCount]string{
	"meta", "source", "lane", "lanename", "job", "key", "ready", "wait", "lease",
	"attempt", "obs", "event", "outbox", "counter", "robots", "host", "page", "segment", "validator",
	"run", "runkey",
	"idem", "idemjob",
	"schedule", "list",
	"change", "cursor",
	"import", "importchunk",
	"staged", "live",
	"dispatch", "dead", "sink", "jobevent",
	"quarantine", "drift",
}

// fillPercent is how full a page is packed when it splits. Buckets whose keys
// arrive in order are packed tight, others keep room (measured: storage.md
// §2.3 of the design notes; 0.9 against 0.5 saves 39 % of the file).
func (b bucket) fillPercent() float64 {
	switch b {
	case bucketJob, bucketWait, bucketLease, bucketReady, bucketAttempt, bucketEvent, bucketOutbox, bucketKey, bucketObservation, bucketRun, bucketList, bucketChange, bucketImportChunk, bucketStaged, bucketLive, bucketDispatch, bucketDead, bucketJobEvent:
		return 0.9
	default:
		return 0.5
	}
}

const (
	longKey       = 128 // job keys over this length are cut in the index
	longKeyPrefix = 96  // and keep this many bytes before the hash
)

func appendU32(b []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(b, n) }
func appendU64(b []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(b, n) }

// appendTime keeps the order of times after 1970; microseconds.
func appendTime(b []byte, t time.Time) []byte { return appendU64(b, uint64(t.UnixMicro())) }

// windowOrder maps a window's start to a number that sorts as time does, with
// none before all.
func windowOrder(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.Unix()) ^ 1<<63
}

// appendText writes text so that the bytes of tuples sort as the tuples do: a
// zero byte becomes 0x00 0xff, and 0x00 0x01 ends the text.
func appendText(b []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		b = append(b, text[i])
		if text[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0, 1)
}

// readText reverses appendText and gives what follows.
func readText(b []byte) (text string, rest []byte, ok bool) {
	if i := bytes.IndexByte(b, 0); i >= 0 && i+1 < len(b) && b[i+1] == 1 {
		return string(b[:i]), b[i+2:], true
	}
	var out []byte
	for i := 0; i+1 < len(b); i++ {
		switch {
		case b[i] != 0:
			out = append(out, b[i])
		case b[i+1] == 1:
			return string(out), b[i+2:], true
		case b[i+1] == 0xff:
			out = append(out, 0)
			i++
		default:
			return "", nil, false
		}
	}
	return "", nil, false
}

func idKey(id uint64) []byte { return appendU64(make([]byte, 0, 8), id) }

// tailID reads the id that ends a key of ready, wait, lease, outbox, dead or jobevent.
func tailID(key []byte) uint64 {
	if len(key) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key[len(key)-8:])
}

// keyIndex is the place of a job key in bucket key.
func keyIndex(window time.Time, text string) []byte {
	b := make([]byte, 0, 8+min(len(text), longKey))
	b = appendU64(b, windowOrder(window))
	if len(text) <= longKey {
		return append(b, text...)
	}
	b = append(b, text[:longKeyPrefix]...)
	return appendU64(b, xxhash.Sum64String(text))
}

// Classes of the ready index: a job that killed its worker again and again
// waits until nothing else of its lane is ready.
const (
	classNormal  = 0
	classSuspect = 1
)

func readyKey(j *Job) []byte {
	class := byte(classNormal)
	if j.Rescues >= suspectAfter {
		class = classSuspect
	}
	b := make([]byte, 0, 14)
	b = appendU32(b, uint32(j.Lane))
	b = append(b, class, byte(127-int(j.Priority)))
	return appendU64(b, j.ID)
}

func timedKey(t time.Time, id uint64) []byte {
	return appendU64(appendTime(make([]byte, 0, 16), t), id)
}

func attemptKey(job uint64, generation uint32) []byte {
	return appendU32(appendU64(make([]byte, 0, 12), job), generation)
}

func counterKey(source, metric string) []byte {
	b := make([]byte, 0, len(source)+1+len(metric))
	b = append(b, source...)
	b = append(b, 0)
	return append(b, metric...)
}

func outboxKey(sink string, seq uint64) []byte {
	b := make([]byte, 0, len(sink)+9)
	b = append(b, sink...)
	b = append(b, 0)
	return appendU64(b, seq)
}

// observationKey is the place of an observation; key holds the record's own
// key as its target.
func observationKey(key JobKey) []byte {
	b := make([]byte, 0, len(key.Source)+len(key.Target)+len(key.Country)+len(key.Scope)+20)
	b = append(b, key.Source...)
	b = append(b, 0)
	b = appendText(b, key.Target)
	b = appendText(b, key.Country)
	b = appendU64(b, windowOrder(key.Window))
	b = appendU32(b, uint32(key.Version))
	return append(b, key.Scope...)
}

// rowKey is a job's place in buckets staged and live, and with the place of a row
// of its in bucket obs that of the row.
func rowKey(run, job uint64, place []byte) []byte {
	b := make([]byte, 0, 16+len(place))
	return append(appendU64(appendU64(b, run), job), place...)
}

// readRowKey reverses rowKey for keys that it made.
func readRowKey(key []byte) (job uint64, place []byte) {
	return binary.BigEndian.Uint64(key[8:]), key[16:]
}

// observationGroup is the part of an observation's key that ends with the
// country: rows that share it differ only in window, version and scope.
func observationGroup(key []byte) ([]byte, bool) {
	source := bytes.IndexByte(key, 0)
	if source < 0 {
		return nil, false
	}
	_, rest, ok := readText(key[source+1:])
	if !ok {
		return nil, false
	}
	if _, rest, ok = readText(rest); !ok {
		return nil, false
	}
	return key[:len(key)-len(rest)], true
}
