package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The tables below hold one kind of damage for each thing that Check promises
// to find, with the whole report it leads to.

// damage changes a damagedStore past every rule.
type damage struct {
	name string
	do   func(tx *Tx) error
	want []Breach // in the order in which Check looks
}

// jobDamage is to job records.
var jobDamage = []damage{
	{"garbage", put(bucketJob, idKey(jobPending), garbage), []Breach{
		{"job", idKey(jobPending), "it cannot be read: record has an unknown version"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:e:-:-:-:-"), "job 6 cannot be read"},
		{"ready", readyAt(1, 0, 0, jobPending), "job 6 cannot be read"},
		{"counter", counterKey("s", "state/pending"), "it says 1, a recount gives 0"},
	}},
	{"cut short", changeRecord(bucketJob, idKey(jobComplete), func(v []byte) []byte { return v[:60] }), []Breach{
		{"job", idKey(jobComplete), "it cannot be read: record is cut short"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:a:-:-:-:-"), "job 3 cannot be read"},
		{"event", idKey(eventA), "its job: reading bucket job, key 0000000000000003: record is cut short"},
		{"event", idKey(eventJobA), "its job: reading bucket job, key 0000000000000003: record is cut short"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 200"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("s", "attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "day/2000-01-01/attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "rules/1"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "state/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"unknown state", put(bucketJob, idKey(jobPending), (&encoder{[]byte{jobVersion, 9}}).sealed()), []Breach{
		{"job", idKey(jobPending), "it cannot be read: unknown state 9"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:e:-:-:-:-"), "job 6 cannot be read"},
		{"ready", readyAt(1, 0, 0, jobPending), "job 6 cannot be read"},
		{"counter", counterKey("s", "state/pending"), "it says 1, a recount gives 0"},
	}},
	{"flag of 3", changeRecord(bucketJob, idKey(jobPending), withByte(23, 3)), []Breach{
		{"job", idKey(jobPending), "it reads as a record that would be written differently"},
		{"job", idKey(jobPending), "rescued by its attempts: false, by itself: true"},
	}},
	{"key is no id", copyTo(bucketJob, idKey(jobPending), []byte("x")), []Breach{
		{"job", []byte("x"), "its key is not an id from 1"},
	}},
	{"id 0", put(bucketJob, idKey(0), garbage), []Breach{
		{"job", idKey(0), "its key is not an id from 1"},
	}},
	{"missing", remove(bucketJob, idKey(jobPending)), []Breach{
		{"attempt", attemptKey(jobPending, 1), "there is no job 6"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:e:-:-:-:-"), "there is no job 6"},
		{"ready", readyAt(1, 0, 0, jobPending), "there is no job 6"},
		{"counter", counterKey("s", "state/pending"), "it says 1, a recount gives 0"},
	}},
	{"missing with attempts and a row", remove(bucketJob, idKey(jobComplete)), []Breach{
		{"attempt", attemptKey(jobComplete, 1), "there is no job 3"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:a:-:-:-:-"), "there is no job 3"},
		{"event", idKey(eventA), "its job: reading bucket key, key 0000000000000000733a613a2d3a2d3a2d3a2d: it leads to job 3, which is missing"},
		{"event", idKey(eventJobA), "its job: reading bucket key, key 0000000000000000733a613a2d3a2d3a2d3a2d: it leads to job 3, which is missing"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 200"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("s", "attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "day/2000-01-01/attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "rules/1"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "state/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"last and missing", remove(bucketJob, idKey(jobCanceled)), []Breach{
		{"attempt", attemptKey(jobCanceled, 1), "there is no job 9"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00t:longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglongloB\x836\xc6F\xd3`)"), "there is no job 9"},
		{"event", idKey(10), "its job: reading bucket key, key 0000000000000000743a6c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f6e676c6f428336c646d36029: it leads to job 9, which is missing"},
		{"counter", counterKey("t", "failures/canceled"), "it says 1, a recount gives 0"},
		{"counter", counterKey("t", "state/failed"), "it says 1, a recount gives 0"},
	}},
	{"under a second id", copyTo(bucketJob, idKey(jobPending), idKey(5000)), []Breach{
		{"job", idKey(5000), "its key s:e:-:-:-:- leads to job 6"},
		{"job", idKey(5000), "it is pending and missing in bucket ready"},
		{"attempt", attemptKey(5000, 1), "it is missing, the first of 1 of job 5000"},
		{"meta", []byte("job"), "it says 13, and 5000 is in use"},
		{"counter", counterKey("s", "state/pending"), "it says 1, a recount gives 2"},
	}},
	{"another target", changeJob(jobPending, func(j *Job) { j.Key.Target = "other" }), []Breach{
		{"job", idKey(jobPending), "its key s:other:-:-:-:- is missing in bucket key"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:e:-:-:-:-"), "job 6 has the key s:other:-:-:-:-"},
	}},
	{"another window", changeJob(jobLater, func(j *Job) { j.Window = j.Window.Add(time.Hour) }), []Breach{
		{"job", idKey(jobLater), "its key s:a:-:1999-12-31T01%3A00%3A00Z:-:- is missing in bucket key"},
		{"key", []byte("\x80\x00\x00\x008k\xf2\x00s:a:-:1999-12-31T00%3A00%3A00Z:-:-"), "job 7 has the key s:a:-:1999-12-31T01%3A00%3A00Z:-:-"},
		{"obs", rowA, "its job: job s:a:-:1999-12-31T00%3A00%3A00Z:-:-: job key collides with another one's hash (it is that of job 7)"},
		{"event", idKey(eventJobLater), "its job: job s:a:-:1999-12-31T00%3A00%3A00Z:-:-: job key collides with another one's hash (it is that of job 7)"},
	}},
	{"window within a second", changeJob(jobLater, func(j *Job) { j.Window = j.Window.Add(time.Millisecond) }), []Breach{
		{"job", idKey(jobLater), "its window does not begin with a second"},
		{"obs", rowA, "its window or country is not that of job 7"},
		{"event", idKey(eventJobLater), "it tells of another window than that of its job"},
	}},
	{"lane of another source", changeJob(jobFailed, func(j *Job) { j.Lane++ }), []Breach{
		{"job", idKey(jobFailed), `it is of source "s", its lane 2 of "t"`},
		{"job", idKey(jobFailed), `it is of country "", its lane 2 of "US"`},
	}},
	{"lane of nothing", changeJob(jobFailed, func(j *Job) { j.Lane = 77 }), []Breach{
		{"job", idKey(jobFailed), `it is of source "s", its lane 77 of ""`},
	}},
	{"another state", changeJob(jobPending, func(j *Job) { j.State = StateComplete }), []Breach{
		{"job", idKey(jobPending), "it is complete and has a reason to fail"},
		{"job", idKey(jobPending), "it is complete, and no attempt completed then"},
		{"ready", readyAt(1, 0, 0, jobPending), "job 6 is complete"},
		{"counter", counterKey("s", "state/complete"), "it says 2, a recount gives 3"},
		{"counter", counterKey("s", "state/pending"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "rules/0"), "it is missing, a recount gives 1"},
	}},
	{"state back to pending", changeJob(jobFailed, func(j *Job) { j.State = StatePending }), []Breach{
		{"job", idKey(jobFailed), "it is pending and missing in bucket ready"},
		{"counter", counterKey("s", "failures/tls"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "state/failed"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "state/pending"), "it says 1, a recount gives 2"},
	}},
	{"running without an owner", changeJob(jobRunning, func(j *Job) { j.Owner = "" }), []Breach{
		{"job", idKey(jobRunning), "it runs without an owner or without an end of its lease"},
	}},
	{"running for ever", changeJob(jobRunning, func(j *Job) { j.LeaseUntil = noTime }), []Breach{
		{"job", idKey(jobRunning), "it runs without an owner or without an end of its lease"},
		{"job", idKey(jobRunning), "it is running and missing in bucket lease"},
		{"lease", timedKey(damagedEnd, jobRunning), "job 4 stands elsewhere"},
	}},
	{"running unclaimed", changeJob(jobRunning, func(j *Job) { j.ClaimedAt = noTime }), []Breach{
		{"job", idKey(jobRunning), "it runs and was never claimed"},
		{"job", idKey(jobRunning), "no attempt of it began at its first claim"},
	}},
	{"running in no generation", changeJob(jobRunning, func(j *Job) { j.Generation = 0 }), []Breach{
		{"job", idKey(jobRunning), "it runs and was never claimed"},
	}},
	{"lease without running", changeJob(jobPending, func(j *Job) { j.Owner = "me" }), []Breach{
		{"job", idKey(jobPending), "it is pending and has a lease"},
	}},
	{"retryable and never due", changeJob(jobRetryable, func(j *Job) { j.NextAt = noTime }), []Breach{
		{"job", idKey(jobRetryable), "it is retryable and never due"},
		{"job", idKey(jobRetryable), "it is retryable and missing in bucket wait"},
		{"job", idKey(jobRetryable), "it is retryable, and its last attempt does not say why and when"},
		{"wait", timedKey(damagedDue, jobRetryable), "job 1 stands elsewhere"},
	}},
	{"retryable at another time", changeJob(jobRetryable, func(j *Job) { j.NextAt = j.NextAt.Add(1e9) }), []Breach{
		{"job", idKey(jobRetryable), "it is retryable and missing in bucket wait"},
		{"job", idKey(jobRetryable), "it is retryable, and its last attempt does not say why and when"},
		{"wait", timedKey(damagedDue, jobRetryable), "job 1 stands elsewhere"},
	}},
	{"due without being retryable", changeJob(jobPending, func(j *Job) { j.NextAt = damagedDue }), []Breach{
		{"job", idKey(jobPending), "it is pending and has a time to be due at"},
	}},
	{"failed without a category", changeJob(jobFailed, func(j *Job) { j.Category = "" }), []Breach{
		{"job", idKey(jobFailed), "it failed without a category"},
		{"counter", counterKey("s", "failures/tls"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "failures/"), "it is missing, a recount gives 1"},
	}},
	{"failed for another category", changeJob(jobFailed, func(j *Job) { j.Category = CategoryDNS }), []Breach{
		{"counter", counterKey("s", "failures/tls"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "failures/dns"), "it is missing, a recount gives 1"},
	}},
	{"unknown category", changeJob(jobPending, func(j *Job) { j.Category = "odd" }), []Breach{
		{"job", idKey(jobPending), "its category is unknown: odd"},
	}},
	{"complete with a reason to fail", changeJob(jobComplete, func(j *Job) { j.Reason = "odd" }), []Breach{
		{"job", idKey(jobComplete), "it is complete and has a reason to fail"},
	}},
	{"retryable for another reason", changeJob(jobRetryable, func(j *Job) { j.Category = CategoryTLS }), []Breach{
		{"job", idKey(jobRetryable), "it is retryable, and its last attempt does not say why and when"},
	}},
	{"failed without an attempt that did", changeJob(jobCanceled, func(j *Job) { j.Category = CategoryReleased }), []Breach{
		{"job", idKey(jobCanceled), "it failed, and neither its last attempt nor a person says so"},
		{"counter", counterKey("t", "failures/canceled"), "it says 1, a recount gives 0"},
		{"counter", counterKey("t", "failures/released"), "it is missing, a recount gives 1"},
	}},
	{"complete at another time", changeJob(jobComplete, func(j *Job) { j.Updated = noTime }), []Breach{
		{"job", idKey(jobComplete), "it is complete, and no attempt completed then"},
	}},
	{"a step sent and never claimed", changeJob(jobRunning, func(j *Job) { j.Sent, j.Generation = "pay", 0 }), []Breach{
		{"job", idKey(jobRunning), "it runs and was never claimed"},
		{"job", idKey(jobRunning), "it may have sent a step and was never claimed"},
	}},
	{"a step sent and to be tried again", changeJob(jobRetryable, func(j *Job) { j.Sent = "pay" }), []Breach{
		{"job", idKey(jobRetryable), "it is to be tried again and may have sent a step that must not be repeated"},
	}},
	{"a step sent and complete", changeJob(jobComplete, func(j *Job) { j.Sent = "pay" }), []Breach{
		{"job", idKey(jobComplete), "it is complete and has a step that may have been sent"},
	}},
	{"generation too low", changeJob(jobRetryable, func(j *Job) { j.Generation = 1 }), []Breach{
		{"attempt", attemptKey(jobRetryable, 2), "generation 2, job 1 has ended 1 and forgotten 0"},
	}},
	{"generation too high", changeJob(jobRetryable, func(j *Job) { j.Generation = 5 }), []Breach{
		{"attempt", attemptKey(jobRetryable, 3), "it is missing, the first of 3 of job 1"},
	}},
	{"attempts", changeJob(jobRetryable, func(j *Job) { j.Attempts = 5 }), []Breach{
		{"job", idKey(jobRetryable), "1 of its attempts count, it says 5"},
	}},
	{"tries", changeJob(jobRetryable, func(j *Job) { j.Tries = 5 }), []Breach{
		{"job", idKey(jobRetryable), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
	}},
	{"rescues", changeJob(jobRetryable, func(j *Job) { j.Rescues = 1 }), []Breach{
		{"job", idKey(jobRetryable), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
	}},
	{"spent", changeJob(jobRetryable, func(j *Job) { j.Spent-- }), []Breach{
		{"job", idKey(jobRetryable), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
	}},
	{"bytes", changeJob(jobRetryable, func(j *Job) { j.BytesUp++ }), []Breach{
		{"job", idKey(jobRetryable), "its attempts moved 7 bytes up and 0 down, it says 8 and 0"},
	}},
	{"not recovered", changeJob(jobRescued, func(j *Job) { j.Recovered = false }), []Breach{
		{"job", idKey(jobRescued), "rescued by its attempts: true, by itself: false"},
	}},
	{"a rescue forgotten", changeJob(jobFailed, func(j *Job) { j.RescueForgotten = true }), []Breach{
		{"job", idKey(jobFailed), "it has forgotten a rescue that it never had"},
	}},
	{"read by other rules", changeJob(jobLater, func(j *Job) { j.Version = 4 }), []Breach{
		{"job", idKey(jobLater), "version 1 of the rules read its page, it says 4"},
		{"counter", counterKey("s", "rules/1"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "rules/4"), "it is missing, a recount gives 1"},
	}},
	{"recovered", changeJob(jobFailed, func(j *Job) { j.Recovered = true }), []Breach{
		{"job", idKey(jobFailed), "rescued by its attempts: false, by itself: true"},
	}},
	{"first claim at another time", changeJob(jobRetryable, func(j *Job) { j.FirstClaim = damagedDue }), []Breach{
		{"job", idKey(jobRetryable), "no attempt of it began at its first claim"},
	}},
	{"first claim at no time", changeJob(jobRetryable, func(j *Job) { j.FirstClaim = noTime }), []Breach{
		{"job", idKey(jobRetryable), "it was claimed, and its first claim has no time"},
	}},
}

// indexDamage is to the indexes and the lanes.
var indexDamage = []damage{
	{"missing in ready", removeAt(bucketReady, jobPending, readyKey), []Breach{
		{"job", idKey(jobPending), "it is pending and missing in bucket ready"},
	}},
	{"missing in wait", removeAt(bucketWait, jobRetryable, waitKey), []Breach{
		{"job", idKey(jobRetryable), "it is retryable and missing in bucket wait"},
	}},
	{"missing in lease", removeAt(bucketLease, jobRunning, endKey), []Breach{
		{"job", idKey(jobRunning), "it is running and missing in bucket lease"},
	}},
	{"missing in key", removeAt(bucketKey, jobPending, indexKey), []Breach{
		{"job", idKey(jobPending), "its key s:e:-:-:-:- is missing in bucket key"},
	}},
	{"failed in ready", putAt(bucketReady, jobFailed, readyKey, nil), []Breach{
		{"ready", readyAt(1, 0, 0, jobFailed), "job 5 is failed"},
	}},
	{"complete in wait", putAt(bucketWait, jobComplete, waitKey, nil), []Breach{
		{"wait", timedKey(noTime, jobComplete), "job 3 is complete"},
	}},
	{"pending in lease", putAt(bucketLease, jobPending, endKey, nil), []Breach{
		{"lease", timedKey(noTime, jobPending), "job 6 is pending"},
	}},
	{"twice in ready", putAt(bucketReady, jobPending, func(j *Job) []byte { j.Priority = 9; return readyKey(j) }, nil), []Breach{
		{"ready", readyAt(1, 0, 9, jobPending), "job 6 stands elsewhere"},
	}},
	{"of no job", put(bucketWait, timedKey(noTime, 77), nil), []Breach{
		{"wait", timedKey(noTime, 77), "there is no job 77"},
	}},
	{"short entry", put(bucketWait, []byte("x"), nil), []Breach{
		{"wait", []byte("x"), "there is no job 0"},
	}},
	{"value in ready", putAt(bucketReady, jobPending, readyKey, []byte("x")), []Breach{
		{"ready", readyAt(1, 0, 0, jobPending), "it has a value"},
	}},
	{"key of another job", putAt(bucketKey, jobPending, indexKey, idKey(jobFailed)), []Breach{
		{"job", idKey(jobPending), "its key s:e:-:-:-:- leads to job 5"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:e:-:-:-:-"), "job 5 has the key s:d:-:-:-:-"},
	}},
	{"key twice", put(bucketKey, []byte("other"), idKey(jobFailed)), []Breach{
		{"key", []byte("other"), "job 5 has the key s:d:-:-:-:-"},
	}},
	{"key of no job", put(bucketKey, []byte("other"), idKey(77)), []Breach{
		{"key", []byte("other"), "there is no job 77"},
	}},
	{"key of no id", putAt(bucketKey, jobPending, indexKey, []byte("x")), []Breach{
		{"job", idKey(jobPending), "its key s:e:-:-:-:- leads to job 0"},
		{"key", []byte("\x00\x00\x00\x00\x00\x00\x00\x00s:e:-:-:-:-"), "its value is not an id"},
	}},
	{"missing lane", remove(bucketLane, Lane{Host: "h", Source: "s"}.name()), []Breach{
		{"lanename", appendU32(nil, 1), `its name "h\x00s" leads to another lane or none`},
	}},
	{"lane of another number", put(bucketLane, Lane{Host: "h", Source: "s"}.name(), appendU32(nil, 2)), []Breach{
		{"lanename", appendU32(nil, 1), `its name "h\x00s" leads to another lane or none`},
		{"lane", []byte("h\x00s"), "the lane it leads to has another name or none"},
	}},
	{"missing lane name", remove(bucketLaneName, appendU32(nil, 2)), []Breach{
		{"job", idKey(jobRescued), `it is of source "t", its lane 2 of ""`},
		{"lane", []byte("h\x00t\x00US"), "the lane it leads to has another name or none"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 200"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("t", "day/2000-01-01/attempts/complete"), "it says 1, a recount gives 0"},
		{"counter", counterKey("t", "day/2000-01-01/bytes_down"), "it says 100, a recount gives 0"},
		{"counter", counterKey("t", "day/2000-01-01/bytes_up"), "it says 1, a recount gives 0"},
	}},
	{"lane of another name", put(bucketLaneName, appendU32(nil, 2), Lane{Host: "h", Source: "s"}.name()), []Breach{
		{"job", idKey(jobRescued), `it is of source "t", its lane 2 of "s"`},
		{"lanename", appendU32(nil, 2), `its name "h\x00s" leads to another lane or none`},
		{"lane", []byte("h\x00t\x00US"), "the lane it leads to has another name or none"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 200"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("t", "day/2000-01-01/attempts/complete"), "it says 1, a recount gives 0"},
		{"counter", counterKey("t", "day/2000-01-01/bytes_down"), "it says 100, a recount gives 0"},
		{"counter", counterKey("t", "day/2000-01-01/bytes_up"), "it says 1, a recount gives 0"},
	}},
	{"lane without a source", put(bucketLaneName, appendU32(nil, 2), []byte("h")), []Breach{
		{"job", idKey(jobRescued), `it is of source "t", its lane 2 of ""`},
		{"lanename", appendU32(nil, 2), "it is not the number of a lane with a host and a source"},
		{"lane", []byte("h\x00t\x00US"), "the lane it leads to has another name or none"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 200"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("t", "day/2000-01-01/attempts/complete"), "it says 1, a recount gives 0"},
		{"counter", counterKey("t", "day/2000-01-01/bytes_down"), "it says 100, a recount gives 0"},
		{"counter", counterKey("t", "day/2000-01-01/bytes_up"), "it says 1, a recount gives 0"},
	}},
	{"lane number cut", put(bucketLaneName, []byte{1}, Lane{Host: "h", Source: "s"}.name()), []Breach{
		{"lanename", []byte("\x01"), "it is not the number of a lane with a host and a source"},
	}},
}

// attemptDamage is to attempts.
var attemptDamage = []damage{
	{"garbage", put(bucketAttempt, attemptKey(jobFailed, 1), garbage), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "it cannot be read: record has an unknown version"},
		{"page", damagedPage.Hash[:], "it says that 6 attempts name it, 5 do"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"flag of 3", changeRecord(bucketAttempt, attemptKey(jobFailed, 1), withByte(41, 2)), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "it reads as a record that would be written differently"},
		{"job", idKey(jobFailed), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
	}},
	{"missing", remove(bucketAttempt, attemptKey(jobRetryable, 1)), []Breach{
		{"attempt", attemptKey(jobRetryable, 1), "it is missing, the first of 1 of job 1"},
		{"counter", counterKey("s", "recovered"), "it says 1, a recount gives 0"},
	}},
	{"last missing", remove(bucketAttempt, attemptKey(jobRetryable, 2)), []Breach{
		{"attempt", attemptKey(jobRetryable, 2), "it is missing, the first of 1 of job 1"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 3"},
		{"counter", counterKey("", "day/2000-01-01/proxy_up/home"), "it says 7, a recount gives 0"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "bytes_up"), "it says 9, a recount gives 2"},
		{"counter", counterKey("s", "bytes_wasted"), "it says 7, a recount gives 0"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 9, a recount gives 2"},
		{"counter", counterKey("s", "proxy_up/home"), "it says 7, a recount gives 0"},
		{"counter", counterKey("s", "retries/dns"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"of the page missing", remove(bucketAttempt, attemptKey(jobComplete, 1)), []Breach{
		{"attempt", attemptKey(jobComplete, 1), "it is missing, the first of 1 of job 3"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 200"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("s", "attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "day/2000-01-01/attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"of no job", copyTo(bucketAttempt, attemptKey(jobFailed, 1), attemptKey(77, 1)), []Breach{
		{"attempt", attemptKey(77, 1), "there is no job 77"},
		{"page", damagedPage.Hash[:], "it says that 6 attempts name it, 7 do"},
	}},
	{"key cut", put(bucketAttempt, []byte("x"), garbage), []Breach{
		{"attempt", []byte("x"), "its key is not a job's id and a generation"},
	}},
	{"key too long", copyTo(bucketAttempt, attemptKey(jobFailed, 1), append(attemptKey(jobFailed, 1), 0)), []Breach{
		{"attempt", []byte("\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x01\x00"), "it cannot be read: record has trailing bytes"},
	}},
	{"generation 0", copyTo(bucketAttempt, attemptKey(jobPending, 1), attemptKey(jobFailed, 0)), []Breach{
		{"attempt", attemptKey(jobFailed, 0), "generation 0, job 5 has ended 1 and forgotten 0"},
	}},
	{"generation to come", copyTo(bucketAttempt, attemptKey(jobPending, 1), attemptKey(jobRunning, 1)), []Breach{
		{"attempt", attemptKey(jobRunning, 1), "generation 1, job 4 has ended 0 and forgotten 0"},
	}},
	{"unknown outcome", changeAttempt(jobFailed, 1, func(a *Attempt) { a.Outcome = "odd" }), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "its outcome is unknown: odd"},
		{"job", idKey(jobFailed), "0 of its attempts count, it says 1"},
		{"job", idKey(jobFailed), "it failed, and neither its last attempt nor a person says so"},
		{"job", idKey(jobFailed), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"another outcome", changeAttempt(jobFailed, 1, func(a *Attempt) { a.Outcome = OutcomeReleased }), []Breach{
		{"job", idKey(jobFailed), "0 of its attempts count, it says 1"},
		{"job", idKey(jobFailed), "it failed, and neither its last attempt nor a person says so"},
		{"job", idKey(jobFailed), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"complete with a category", changeAttempt(jobComplete, 1, func(a *Attempt) { a.Category = CategoryTLS }), []Breach{
		{"attempt", attemptKey(jobComplete, 1), "it completed and has a category"},
	}},
	{"retried for no category", changeAttempt(jobRetryable, 2, func(a *Attempt) { a.Category = "" }), []Breach{
		{"attempt", attemptKey(jobRetryable, 2), "it is to be tried again for no category"},
		{"job", idKey(jobRetryable), "it is retryable, and its last attempt does not say why and when"},
		{"counter", counterKey("s", "retries/dns"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "retries/"), "it is missing, a recount gives 1"},
	}},
	{"retried for another category", changeAttempt(jobRetryable, 2, func(a *Attempt) { a.Category = CategoryTLS }), []Breach{
		{"job", idKey(jobRetryable), "it is retryable, and its last attempt does not say why and when"},
		{"counter", counterKey("s", "retries/dns"), "it says 1, a recount gives 0"},
		{"counter", counterKey("s", "retries/tls"), "it is missing, a recount gives 1"},
	}},
	{"unknown category", changeAttempt(jobPending, 1, func(a *Attempt) { a.Category = "odd" }), []Breach{
		{"attempt", attemptKey(jobPending, 1), "its category is unknown: odd"},
	}},
	{"retried at no time", changeAttempt(jobRetryable, 2, func(a *Attempt) { a.NextAt = noTime }), []Breach{
		{"attempt", attemptKey(jobRetryable, 2), "its outcome and the time of the next attempt contradict each other"},
		{"job", idKey(jobRetryable), "it is retryable, and its last attempt does not say why and when"},
	}},
	{"retried at another time", changeAttempt(jobRetryable, 2, func(a *Attempt) { a.NextAt = a.Start }), []Breach{
		{"job", idKey(jobRetryable), "it is retryable, and its last attempt does not say why and when"},
	}},
	{"failed with a time to try again", changeAttempt(jobFailed, 1, func(a *Attempt) { a.NextAt = a.End }), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "its outcome and the time of the next attempt contradict each other"},
	}},
	{"without owner", changeAttempt(jobFailed, 1, func(a *Attempt) { a.Owner = "" }), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "it has no owner"},
	}},
	{"without end", changeAttempt(jobFailed, 1, func(a *Attempt) { a.End = noTime }), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "it has no start or no end"},
	}},
	{"below no bytes", changeAttempt(jobFailed, 1, func(a *Attempt) { a.BytesUp = -1 }), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "it moved less than no bytes"},
		{"job", idKey(jobFailed), "its attempts moved -1 bytes up and 0 down, it says 0 and 0"},
		{"job", idKey(jobFailed), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("s", "bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "bytes_wasted"), "it says 7, a recount gives 6"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 9, a recount gives 8"},
	}},
	{"other bytes", changeAttempt(jobComplete, 1, func(a *Attempt) { a.BytesDown++ }), []Breach{
		{"job", idKey(jobComplete), "its attempts moved 1 bytes up and 101 down, it says 1 and 100"},
		{"job", idKey(jobComplete), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 301"},
		{"counter", counterKey("s", "bytes_down"), "it says 200, a recount gives 201"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_down"), "it says 200, a recount gives 201"},
	}},
	{"through another proxy", changeAttempt(jobRetryable, 2, func(a *Attempt) { a.Proxy = "away" }), []Breach{
		{"counter", counterKey("", "day/2000-01-01/proxy_up/home"), "it says 7, a recount gives 0"},
		{"counter", counterKey("s", "proxy_up/home"), "it says 7, a recount gives 0"},
		{"counter", counterKey("", "day/2000-01-01/proxy_up/away"), "it is missing, a recount gives 7"},
		{"counter", counterKey("s", "proxy_up/away"), "it is missing, a recount gives 7"},
	}},
	{"in a lane of another source", changeAttempt(jobFailed, 1, func(a *Attempt) { a.Lane++ }), []Breach{
		{"attempt", attemptKey(jobFailed, 1), `its job is of source "s", its lane 2 of "t"`},
	}},
	{"ended on another day", changeAttempt(jobRetryable, 2, func(a *Attempt) { a.End = a.End.Add(day) }), []Breach{
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 3"},
		{"counter", counterKey("", "day/2000-01-01/proxy_up/home"), "it says 7, a recount gives 0"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 9, a recount gives 2"},
		{"counter", counterKey("", "day/2000-01-02/host_up/h"), "it is missing, a recount gives 7"},
		{"counter", counterKey("", "day/2000-01-02/proxy_up/home"), "it is missing, a recount gives 7"},
		{"counter", counterKey("s", "day/2000-01-02/bytes_up"), "it is missing, a recount gives 7"},
	}},
	{"began at another time", changeAttempt(jobFailed, 1, func(a *Attempt) { a.Start = a.End }), []Breach{
		{"job", idKey(jobFailed), "no attempt of it began at its first claim"},
	}},
	{"ended at another time", changeAttempt(jobComplete, 1, func(a *Attempt) { a.End = a.Start }), []Breach{
		{"job", idKey(jobComplete), "it is complete, and no attempt completed then"},
	}},
	{"free", changeAttempt(jobFailed, 1, func(a *Attempt) { a.Free = true }), []Breach{
		{"job", idKey(jobFailed), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
	}},
	{"another page", changeAttempt(jobRescued, 2, func(a *Attempt) { a.FinalURL = "http://h/other" }), []Breach{
		{"obs", rowGone, "no attempt of job 2 read http://h/2 by version 3 of the rules"},
		{"obs", rowY, "no attempt of job 2 read http://h/2 by version 3 of the rules"},
	}},
	{"other rules", changeAttempt(jobLater, 1, func(a *Attempt) { a.ParserVersion++ }), []Breach{
		{"job", idKey(jobLater), "version 2 of the rules read its page, it says 1"},
		{"obs", rowA, "no attempt of job 7 read http://h/7 by version 1 of the rules"},
	}},
}

// rowDamage is to observations.
var rowDamage = []damage{
	{"garbage", put(bucketObservation, rowA, garbage), []Breach{
		{"obs", rowA, "it cannot be read: record has an unknown version"},
		{"change", changeA, "it leads to no observation of this number"},
		{"counter", counterKey("s", "observations"), "it says 1, a recount gives 0"},
	}},
	{"a bit", changeRaw(bucketObservation, rowGone, withByte(8, 1)), []Breach{
		{"obs", rowGone, "it cannot be read: record is not what was written: its checksum differs"},
		{"change", changeGone, "it leads to no observation of this number"},
		{"counter", counterKey("t", "observations"), "it says 2, a recount gives 1"},
	}},
	{"flag of 3", changeRecord(bucketObservation, rowGone, withByte(25, 3)), []Breach{
		{"obs", rowGone, "it reads as a record that would be written differently"},
	}},
	{"key cut", copyTo(bucketObservation, rowA, rowA[:12]), []Breach{
		{"obs", []byte("s\x00a\x00\x01\x00\x01\x00\x00\x00\x00\x00"), "it cannot be read: record is cut short"},
	}},
	{"missing", remove(bucketObservation, rowA), []Breach{
		{"change", changeA, "it leads to no observation of this number"},
		{"event", idKey(eventA), "there is no observation s:a:-:-:-:-"},
		{"event", idKey(eventLater), "there is no observation s:a:-:-:-:-"},
		{"counter", counterKey("s", "observations"), "it says 1, a recount gives 0"},
	}},
	{"twice", copyTo(bucketObservation, rowA, observationKey(JobKey{Source: "s", Target: "b"})), []Breach{
		{"obs", observationKey(JobKey{Source: "s", Target: "b"}), "its change 4 is missing in bucket change, or leads elsewhere"},
		{"counter", counterKey("s", "observations"), "it says 1, a recount gives 2"},
	}},
	{"under another source", copyTo(bucketObservation, rowA, observationKey(JobKey{Source: "t", Target: "a"})), []Breach{
		{"obs", observationKey(JobKey{Source: "t", Target: "a"}), "its change 4 is missing in bucket change, or leads elsewhere"},
		{"obs", []byte("t\x00a\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), "it names job s:a:-:1999-12-31T00%3A00%3A00Z:-:-, of another source, country, window, scope or version"},
		{"counter", counterKey("t", "observations"), "it says 2, a recount gives 3"},
	}},
	{"of no job", changeRow(rowA, func(o *Observation) { o.Job = newJob("ghost").Key.String() }), []Breach{
		{"obs", rowA, "its job: job s:ghost:-:-:-:-: not found"},
	}},
	{"of nothing", changeRow(rowA, func(o *Observation) { o.Job = "x" }), []Breach{
		{"obs", rowA, `it names "x", which is not the key of a job`},
	}},
	{"job key written differently", changeRow(rowA, func(o *Observation) { o.Job = strings.Replace(o.Job, "a", "%61", 1) }), []Breach{
		{"obs", rowA, `it names "s:%61:-:1999-12-31T00%3A00%3A00Z:-:-", which is not the key of a job`},
	}},
	{"of a job that cannot be read", put(bucketJob, idKey(jobLater), garbage), []Breach{
		{"job", idKey(jobLater), "it cannot be read: record has an unknown version"},
		{"run", idKey(2), "its counts are not those of its jobs"},
		{"key", []byte("\x80\x00\x00\x008k\xf2\x00s:a:-:1999-12-31T00%3A00%3A00Z:-:-"), "job 7 cannot be read"},
		{"obs", rowA, "its job: reading bucket job, key 0000000000000007: record has an unknown version"},
		{"event", idKey(eventJobLater), "its job: reading bucket job, key 0000000000000007: record has an unknown version"},
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it says 300, a recount gives 200"},
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 10, a recount gives 9"},
		{"counter", counterKey("s", "attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "attempts/counted"), "it says 4, a recount gives 3"},
		{"counter", counterKey("s", "bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "day/2000-01-01/attempts/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_down"), "it says 200, a recount gives 100"},
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 9, a recount gives 8"},
		{"counter", counterKey("s", "rules/1"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "state/complete"), "it says 2, a recount gives 1"},
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"of a job that never completed", changeRow(rowA, func(o *Observation) { o.Job, o.Window = newJob("e").Key.String(), noTime }), []Breach{
		{"obs", rowA, "job 6, which made it, never completed"},
	}},
	{"of another job", changeRow(rowA, func(o *Observation) { o.Job, o.Window = newJob("a").Key.String(), noTime }), []Breach{
		{"obs", rowA, "no attempt of job 3 read http://h/7 by version 1 of the rules"},
	}},
	{"another window", changeRow(rowA, func(o *Observation) { o.Window = noTime }), []Breach{
		{"obs", rowA, "its window or country is not that of job 7"},
	}},
	{"another country", changeRow(rowY, func(o *Observation) { o.Country = "DE" }), []Breach{
		{"obs", rowY, "its window or country is not that of job 2"},
	}},
	{"another page", changeRow(rowY, func(o *Observation) { o.URL = "http://h/other" }), []Breach{
		{"obs", rowY, "no attempt of job 2 read http://h/other by version 3 of the rules"},
	}},
	{"other rules", changeRow(rowY, func(o *Observation) { o.Version++ }), []Breach{
		{"obs", rowY, "no attempt of job 2 read http://h/2 by version 4 of the rules"},
	}},
	{"revision 0", changeRow(rowY, func(o *Observation) { o.Revision = 0 }), []Breach{
		{"obs", rowY, "its revision is 0"},
		{"event", idKey(eventY), "it tells of revision 1, the observation is in revision 0"},
	}},
	{"earlier revision", changeRow(rowA, func(o *Observation) { o.Revision = 1 }), []Breach{
		{"event", idKey(eventA), "revision 1 of the observation has another content or time"},
		{"event", idKey(eventLater), "it tells of revision 2, the observation is in revision 1"},
	}},
	{"observed at no time", changeRow(rowY, func(o *Observation) { o.ObservedAt = noTime }), []Breach{
		{"obs", rowY, "it was observed at no time"},
		{"event", idKey(eventY), "revision 1 of the observation has another content or time"},
	}},
	{"observed at another time", changeRow(rowY, func(o *Observation) { o.ObservedAt = o.ObservedAt.Add(-time.Second) }), []Breach{
		{"event", idKey(eventY), "revision 1 of the observation has another content or time"},
	}},
	{"gone with data", changeRow(rowGone, func(o *Observation) { o.Data = []byte(`{}`) }), []Breach{
		{"obs", rowGone, "it is gone and has data"},
		{"event", idKey(eventGone), "revision 1 of the observation has another content or time"},
	}},
	{"no data", changeRow(rowY, func(o *Observation) { o.Data = nil }), []Breach{
		{"obs", rowY, "its data is not a JSON object"},
		{"event", idKey(eventY), "revision 1 of the observation has another content or time"},
	}},
	{"data of another kind", changeRow(rowY, func(o *Observation) { o.Data = []byte(`["v"]`) }), []Breach{
		{"obs", rowY, "its data is not a JSON object"},
		{"event", idKey(eventY), "revision 1 of the observation has another content or time"},
	}},
	{"broken data", changeRow(rowY, func(o *Observation) { o.Data = []byte(`{"v":nul}`) }), []Breach{
		{"obs", rowY, "its data is not a JSON object"},
		{"event", idKey(eventY), "revision 1 of the observation has another content or time"},
	}},
	{"other data", changeRow(rowY, func(o *Observation) { o.Data = []byte(`{"v":1}`) }), []Breach{
		{"event", idKey(eventY), "revision 1 of the observation has another content or time"},
	}},
	{"gone", changeRow(rowY, func(o *Observation) { o.Gone, o.Data = true, nil }), []Breach{
		{"event", idKey(eventY), "revision 1 of the observation has another content or time"},
	}},
	{"missing field without a name", changeRow(rowY, func(o *Observation) { o.Missing = []string{""} }), []Breach{
		{"obs", rowY, "its list of missing fields has no name or one twice"},
	}},
	{"missing field twice", changeRow(rowY, func(o *Observation) { o.Missing = []string{"v", "v"} }), []Breach{
		{"obs", rowY, "its list of missing fields has no name or one twice"},
	}},
}

// eventDamage is to events and the outbox.
var eventDamage = []damage{
	{"garbage", put(bucketEvent, idKey(eventA), garbage), []Breach{
		{"event", idKey(eventA), "it cannot be read: record has an unknown version"},
	}},
	{"key is no number", copyTo(bucketEvent, idKey(eventA), []byte("x")), []Breach{
		{"event", []byte("x"), "its key is not a number from 1"},
	}},
	{"number 0", copyTo(bucketEvent, idKey(eventA), idKey(0)), []Breach{
		{"event", idKey(0), "its key is not a number from 1"},
	}},
	{"missing", remove(bucketEvent, idKey(eventA)), []Breach{
		{"jobevent", jobEventKey(jobComplete, eventA), "no event 4 is of this job"},
		{"dispatch", dispatchKey(eventA, "a"), "its event is missing"},
	}},
	{"of no kind", changeEvent(eventA, func(e *Event) { e.Type = "odd" }), []Breach{
		{"event", idKey(eventA), "its type is unknown: odd"},
	}},
	{"of another kind", changeEvent(eventA, func(e *Event) { e.Type = EventUpdated }), []Breach{
		{"event", idKey(eventA), "its id is not that of what it tells"},
		{"event", idKey(eventA), "its type and the revision it tells of contradict each other"},
	}},
	{"another id", changeEvent(eventA, func(e *Event) { e.ID = "evt_0" }), []Breach{
		{"event", idKey(eventA), "its id is not that of what it tells"},
	}},
	{"another time", changeEvent(eventA, func(e *Event) { e.Timestamp = noTime }), []Breach{
		{"event", idKey(eventA), "it tells of what was observed after it"},
	}},
	{"newest too early", changeEvent(eventLater, func(e *Event) { e.Timestamp = e.Timestamp.Add(-time.Millisecond) }), []Breach{
		{"event", idKey(eventLater), "it tells of what was observed after it"},
	}},
	{"another key", changeEvent(eventA, func(e *Event) { e.Key = newJob("b").Key.String() }), []Breach{
		{"event", idKey(eventA), "there is no observation s:b:-:-:-:-"},
		{"event", idKey(eventA), "it reads as a record that would be written differently"},
		{"event", idKey(eventA), "its id is not that of what it tells"},
	}},
	{"key of nothing", changeEvent(eventA, func(e *Event) { e.Key = "x" }), []Breach{
		{"event", idKey(eventA), `its data is not that of an observation: job key "x": want 6 parts between colons, got 1`},
	}},
	{"data cut", changeEvent(eventA, func(e *Event) { e.Data = e.Data[:40] }), []Breach{
		{"event", idKey(eventA), "its data is not that of an observation: unexpected end of JSON input"},
	}},
	{"no data", changeEvent(eventA, func(e *Event) { e.Data = nil }), []Breach{
		{"event", idKey(eventA), "its data is not that of an observation: it has no _meta"},
	}},
	{"other content", changeEvent(eventLater, says(`{"v":1`, `{"v":2`)), []Breach{
		{"event", idKey(eventLater), "it reads as a record that would be written differently"},
		{"event", idKey(eventLater), "its id is not that of what it tells"},
		{"event", idKey(eventLater), "revision 2 of the observation has another content or time"},
	}},
	{"spaced", changeEvent(eventLater, says(`"revision":2`, `"revision": 2`)), []Breach{
		{"event", idKey(eventLater), "it reads as a record that would be written differently"},
	}},
	{"other fingerprint", changeEvent(eventLater, says(`"fingerprint":"`, `"fingerprint":"0`)), []Breach{
		{"event", idKey(eventLater), "it reads as a record that would be written differently"},
	}},
	{"later revision", changeEvent(eventLater, says(`"revision":2`, `"revision":3`)), []Breach{
		{"event", idKey(eventLater), "it tells of revision 3, the observation is in revision 2"},
	}},
	{"not gone", changeEvent(eventGone, says(`,"gone":true`, ``)), []Breach{
		{"event", idKey(eventGone), "it reads as a record that would be written differently"},
		{"event", idKey(eventGone), "its id is not that of what it tells"},
		{"event", idKey(eventGone), "revision 1 of the observation has another content or time"},
	}},
	{"of no job", changeEvent(eventA, says(`"job":"s:a:`, `"job":"s:ghost:`)), []Breach{
		{"event", idKey(eventA), "its job: job s:ghost:-:-:-:-: not found"},
	}},
	{"of a job elsewhere", changeEvent(eventA, says(`"job":"s:`, `"job":"t:`)), []Breach{
		{"event", idKey(eventA), "it names job t:a:-:-:-:-, of another source, country, window, scope or version"},
	}},
	{"of no row", remove(bucketObservation, rowGone), []Breach{
		{"change", changeGone, "it leads to no observation of this number"},
		{"event", idKey(eventGone), "there is no observation t:gone:US:-:acme:v3"},
		{"counter", counterKey("t", "observations"), "it says 2, a recount gives 1"},
	}},
	{"of a row that cannot be read", put(bucketObservation, rowGone, garbage), []Breach{
		{"obs", rowGone, "it cannot be read: record has an unknown version"},
		{"change", changeGone, "it leads to no observation of this number"},
		{"counter", counterKey("t", "observations"), "it says 2, a recount gives 1"},
	}},
	{"of a job: key of nothing", changeEvent(eventFailed, func(e *Event) { e.Key = "x" }), []Breach{
		{"event", idKey(eventFailed), `its job: job key "x": want 6 parts between colons, got 1`},
	}},
	{"of a job: no job", changeEvent(eventFailed, func(e *Event) { e.Key = newJob("ghost").Key.String() }), []Breach{
		{"event", idKey(eventFailed), "its job: job s:ghost:-:-:-:-: not found"},
	}},
	{"of a job: data cut", changeEvent(eventFailed, func(e *Event) { e.Data = e.Data[:9] }), []Breach{
		{"event", idKey(eventFailed), "its data is not that of a job: unexpected end of JSON input"},
	}},
	{"of a job: spaced", changeEvent(eventFailed, says(`"id":`, `"id": `)), []Breach{
		{"event", idKey(eventFailed), "it reads as a record that would be written differently"},
	}},
	{"of a job: another id", changeEvent(eventFailed, func(e *Event) { e.ID = "evt_0" }), []Breach{
		{"event", idKey(eventFailed), "its id is not that of what it tells"},
	}},
	{"of a job: another number", changeEvent(eventFailed, says(`"id":5`, `"id":4`)), []Breach{
		{"event", idKey(eventFailed), "it tells of another job than its key"},
		{"event", idKey(eventFailed), "it tells of another job than the one that it is of"},
	}},
	{"of a job: another state", changeEvent(eventFailed, says(`"state":"failed"`, `"state":"complete"`)), []Breach{
		{"event", idKey(eventFailed), "its type and the state it tells of contradict each other"},
	}},
	{"of a job: another kind", changeEvent(eventFailed, func(e *Event) { e.Type = EventJobComplete }), []Breach{
		{"event", idKey(eventFailed), "its id is not that of what it tells"},
		{"event", idKey(eventFailed), "its type and the state it tells of contradict each other"},
	}},
	{"of a job: another window", changeEvent(eventFailed, says(`"window":null`, `"window":"2026-04-23T15:00:00Z"`)), []Breach{
		{"event", idKey(eventFailed), "it tells of another window than that of its job"},
	}},
	{"of a job: more attempts", changeEvent(eventFailed, says(`"attempts":1`, `"attempts":2`)), []Breach{
		{"event", idKey(eventFailed), "its id is not that of what it tells"},
		{"event", idKey(eventFailed), "it tells of more attempts than its job has"},
	}},
}

// nameDamage is to sources, hosts and what is counted up.
var nameDamage = []damage{
	{"garbage source", put(bucketSource, []byte("s"), garbage), []Breach{
		{"source", []byte("s"), "it cannot be read: invalid character 'c' looking for beginning of value"},
	}},
	{"source written differently", changeRaw(bucketSource, []byte("s"), func(v []byte) []byte { return append([]byte(" "), v...) }), []Breach{
		{"source", []byte("s"), "it reads as a record that would be written differently"},
	}},
	{"garbage robots", put(bucketRobots, []byte("http://h"), garbage), []Breach{
		{"robots", []byte("http://h"), "it cannot be read: record has an unknown version"},
	}},
	{"garbage host", put(bucketHost, []byte("h"), garbage), []Breach{
		{"host", []byte("h"), "it is not a time"},
	}},
	{"schema", put(bucketMeta, schemaKey, appendU32(nil, schema+1)), []Breach{
		{"meta", []byte("schema"), "it is not 6, the version of this layout"},
	}},
	{"job sequence", put(bucketMeta, []byte("job"), i64(3)), []Breach{
		{"meta", []byte("job"), "it says 3, and 13 is in use"},
	}},
	{"event sequence", put(bucketMeta, []byte("event"), i64(3)), []Breach{
		{"meta", []byte("event"), "it says 3, and 20 is in use"},
	}},
	{"lane sequence", put(bucketMeta, []byte("lane"), i64(1)), []Breach{
		{"meta", []byte("lane"), "it says 1, and 6 is in use"},
	}},
	{"days from no day", put(bucketMeta, daysKey, []byte("2000-01-0")), []Breach{
		{"meta", []byte("days"), "it is not a day"},
	}},
	{"missing sequence", remove(bucketMeta, []byte("job")), []Breach{
		{"meta", []byte("job"), "it says 0, and 13 is in use"},
	}},
	{"garbage sequence", put(bucketMeta, []byte("job"), garbage), []Breach{
		{"meta", []byte("job"), "it is not a number"},
	}},
}

// counterDamage is to counters.
var counterDamage = []damage{
	{"jobs by state", addTo("s", metricState+"complete", 1), []Breach{
		{"counter", counterKey("s", "state/complete"), "it says 3, a recount gives 2"},
	}},
	{"failures", addTo("s", MetricFailures+"tls", 1), []Breach{
		{"counter", counterKey("s", "failures/tls"), "it says 2, a recount gives 1"},
	}},
	{"attempts", addTo("s", MetricAttempts, -1), []Breach{
		{"counter", counterKey("s", "attempts/counted"), "it says 3, a recount gives 4"},
	}},
	{"complete attempts", addTo("s", MetricComplete, 1), []Breach{
		{"counter", counterKey("s", "attempts/complete"), "it says 3, a recount gives 2"},
	}},
	{"recovered leases", addTo("s", MetricRecovered, 1), []Breach{
		{"counter", counterKey("s", "recovered"), "it says 2, a recount gives 1"},
	}},
	{"completed after recovery", addTo("t", MetricAfterRecovery, 1), []Breach{
		{"counter", counterKey("t", "completed_after_recovery"), "it says 2, a recount gives 1"},
	}},
	{"retries", addTo("s", MetricRetries+"dns", 1), []Breach{
		{"counter", counterKey("s", "retries/dns"), "it says 2, a recount gives 1"},
	}},
	{"bytes up", addTo("s", MetricBytesUp, 1), []Breach{
		{"counter", counterKey("s", "bytes_up"), "it says 10, a recount gives 9"},
	}},
	{"bytes down", addTo("s", MetricBytesDown, 1), []Breach{
		{"counter", counterKey("s", "bytes_down"), "it says 201, a recount gives 200"},
	}},
	{"bytes wasted", addTo("s", MetricBytesWasted, 1), []Breach{
		{"counter", counterKey("s", "bytes_wasted"), "it says 8, a recount gives 7"},
	}},
	{"bytes through a proxy", addTo("s", MetricProxyUp+"home", -1), []Breach{
		{"counter", counterKey("s", "proxy_up/home"), "it says 6, a recount gives 7"},
	}},
	{"bytes through a proxy of nothing", addTo("s", MetricProxyDown+"away", 1), []Breach{
		{"counter", counterKey("s", "proxy_down/away"), "it says 1, a recount gives 0"},
	}},
	{"bytes through a proxy on a day", addTo("", "day/2000-01-01/"+MetricProxyUp+"home", 1), []Breach{
		{"counter", counterKey("", "day/2000-01-01/proxy_up/home"), "it says 8, a recount gives 7"},
	}},
	{"bytes through a proxy on another day", addTo("", "day/2000-01-02/"+MetricProxyDown+"home", 1), []Breach{
		{"counter", counterKey("", "day/2000-01-02/proxy_down/home"), "it says 1, a recount gives 0"},
	}},
	{"bytes of a host on a day", addTo("", "day/2000-01-01/"+metricHostUp+"h", 1), []Breach{
		{"counter", counterKey("", "day/2000-01-01/host_up/h"), "it says 11, a recount gives 10"},
	}},
	{"bytes of a host on a day missing", remove(bucketCounter, counterKey("", "day/2000-01-01/"+metricHostDown+"h")), []Breach{
		{"counter", counterKey("", "day/2000-01-01/host_down/h"), "it is missing, a recount gives 300"},
	}},
	{"bytes up on a day", addTo("s", "day/2000-01-01/"+MetricBytesUp, 1), []Breach{
		{"counter", counterKey("s", "day/2000-01-01/bytes_up"), "it says 10, a recount gives 9"},
	}},
	{"bytes down on a day", addTo("s", "day/2000-01-01/"+MetricBytesDown, 1), []Breach{
		{"counter", counterKey("s", "day/2000-01-01/bytes_down"), "it says 201, a recount gives 200"},
	}},
	{"complete attempts on a day", addTo("s", "day/2000-01-01/"+MetricComplete, 1), []Breach{
		{"counter", counterKey("s", "day/2000-01-01/attempts/complete"), "it says 3, a recount gives 2"},
	}},
	{"observations", addTo("s", MetricObservations, 1), []Breach{
		{"counter", counterKey("s", "observations"), "it says 2, a recount gives 1"},
	}},
	{"durations", addTo("s", durationMetric(time.Second), 1), []Breach{
		{"counter", counterKey("s", "duration/"), "the counters under it hold +1 attempts against a recount"},
	}},
	{"a duration missing", remove(bucketCounter, counterKey("s", durationMetric(time.Second))), []Breach{
		{"counter", counterKey("s", "duration/"), "the counters under it hold -4 attempts against a recount"},
	}},
	{"missing", remove(bucketCounter, counterKey("s", MetricObservations)), []Breach{
		{"counter", counterKey("s", "observations"), "it is missing, a recount gives 1"},
	}},
	{"of nothing", addTo("x", MetricFailures+"dns", 2), []Breach{
		{"counter", counterKey("x", "failures/dns"), "it says 2, a recount gives 0"},
	}},
	{"below zero", addTo("s", MetricDuplicates, -1), []Breach{
		{"counter", counterKey("s", "day/2000-01-01/duplicates_rejected"), "it says -1"},
		{"counter", counterKey("s", "duplicates_rejected"), "it says -1"},
	}},
	{"cut short", put(bucketCounter, counterKey("s", MetricDuplicates), []byte("x")), []Breach{
		{"counter", counterKey("s", "duplicates_rejected"), "it is not a counter of a source"},
	}},
	{"without source", put(bucketCounter, []byte("x"), i64(0)), []Breach{
		{"counter", []byte("x"), "it is not a counter of a source"},
	}},
}

// keptDamage is to kept pages, their segments and the files of those.
var keptDamage = []damage{
	{"page garbage", put(bucketPage, damagedPage.Hash[:], garbage), []Breach{
		{"page", damagedPage.Hash[:], "it cannot be read: record has an unknown version"},
		{"segment", segmentKey(1), "it says 79 bytes in use, its pages take 0"},
	}},
	{"page missing", remove(bucketPage, damagedPage.Hash[:]), []Breach{
		{"attempt", attemptKey(jobFailed, 1), "there is no page " + damagedPage.Hash.String()},
		{"attempt", attemptKey(jobLater, 1), "there is no page " + damagedPage.Hash.String()},
		{"attempt", attemptKey(jobRequeued, 1), "there is no page " + damagedPage.Hash.String()},
		{"attempt", attemptKey(jobUnfit, 1), "there is no page " + damagedPage.Hash.String()},
		{"attempt", attemptKey(jobReparsed, 1), "there is no page " + damagedPage.Hash.String()},
		{"attempt", attemptKey(jobReparsed, 2), "there is no page " + damagedPage.Hash.String()},
		{"segment", segmentKey(1), "it says 79 bytes in use, its pages take 0"},
	}},
	{"page of no hash", copyTo(bucketPage, damagedPage.Hash[:], []byte("x")), []Breach{
		{"page", []byte("x"), "its key is not a SHA-256"},
	}},
	{"page of other bytes", copyTo(bucketPage, damagedPage.Hash[:], make([]byte, 32)), []Breach{
		{"page", make([]byte, 32), "it cannot be read: its frame at 8 in SEGMENT: another frame or none stands there"},
		{"segment", segmentKey(1), "it says 79 bytes in use, its pages take 158"},
		{"page", make([]byte, 32), "it says that 6 attempts name it, 0 do"},
	}},
	{"page in no segment", put(bucketPage, damagedPage.Hash[:], pagePlace{9, 8, 79, 6}.encode()), []Breach{
		{"page", damagedPage.Hash[:], "there is no segment 9"},
		{"segment", segmentKey(1), "it says 79 bytes in use, its pages take 0"},
	}},
	{"page behind the end", put(bucketPage, damagedPage.Hash[:], pagePlace{1, 9, 79, 6}.encode()), []Breach{
		{"page", damagedPage.Hash[:], "it ends behind its segment 1"},
	}},
	{"page named more often", put(bucketPage, damagedPage.Hash[:], pagePlace{1, 8, 79, 1}.encode()), []Breach{
		{"page", damagedPage.Hash[:], "it says that 1 attempts name it, 6 do"},
	}},
	{"segment garbage", put(bucketSegment, segmentKey(1), garbage), []Breach{
		{"segment", segmentKey(1), "it cannot be read: record has an unknown version"},
		{"page", damagedPage.Hash[:], "there is no segment 1"},
	}},
	{"segment without number", copyTo(bucketSegment, segmentKey(1), []byte("x")), []Breach{
		{"segment", []byte("x"), "its key is not the number of a segment"},
	}},
	{"segment without name", put(bucketSegment, segmentKey(1), segmentRecord{"../semel.db", 87, 79}.encode()), []Breach{
		{"segment", segmentKey(1), "it has no name of a segment"},
	}},
	{"file missing", toSegment(os.Remove), []Breach{
		{"segment", segmentKey(1), "its file SEGMENT is missing"},
	}},
	{"file cut short", toSegment(func(path string) error { return os.Truncate(path, 80) }), []Breach{
		{"segment", segmentKey(1), "its file SEGMENT is cut short"},
	}},
	{"file of other bytes", toSegment(func(path string) error { return flipByte(path, 70) }), []Breach{
		{"page", damagedPage.Hash[:], "it cannot be read: its frame at 8 in SEGMENT: its bytes have another SHA-256"},
	}},
}

// validatorDamage is to what asks for kept pages.
var validatorDamage = []damage{
	{"garbage", put(bucketValidator, damagedValidator, garbage), []Breach{
		{"validator", damagedValidator, "it cannot be read: record has an unknown version"},
	}},
	{"of nothing", put(bucketValidator, damagedValidator, validatorRecord{Validator{}, jobLater, 1, 0}.encode()), []Breach{
		{"validator", damagedValidator, "it has neither an ETag nor a Last-Modified"},
	}},
	{"of no attempt", put(bucketValidator, damagedValidator, validatorRecord{Validator{ETag: "1"}, jobLater, 2, 0}.encode()), []Breach{
		{"validator", damagedValidator, "there is no attempt 2 of job 7"},
	}},
	{"of an attempt without a page", put(bucketValidator, damagedValidator, validatorRecord{Validator{ETag: "1"}, jobComplete, 1, 0}.encode()), []Breach{
		{"validator", damagedValidator, "attempt 1 of job 3 did not complete with a page that is kept"},
	}},
	{"of an attempt that failed", put(bucketValidator, damagedValidator, validatorRecord{Validator{ETag: "1"}, jobFailed, 1, 0}.encode()), []Breach{
		{"validator", damagedValidator, "attempt 1 of job 5 did not complete with a page that is kept"},
		{"validator", damagedValidator, "attempt 1 of job 5 is of another source, target or country"},
	}},
	{"of another country", copyTo(bucketValidator, damagedValidator, validatorKey(JobKey{Source: "s", Target: "a"}, "DE")), []Breach{
		{"validator", validatorKey(JobKey{Source: "s", Target: "a"}, "DE"), "attempt 1 of job 7 is of another source, target or country"},
	}},
}

// importDamage is to imports and their chunks.
var importDamage = []damage{
	{"garbage", put(bucketImport, []byte(importHalf.String()), garbage), []Breach{
		{"import", []byte(importHalf.String()), "it cannot be read: record has an unknown version"},
		{"importchunk", importChunkKey(importHalf, 0), "no import has it"},
		{"importchunk", importChunkKey(importHalf, 1), "no import has it"},
	}},
	{"missing", remove(bucketImport, []byte(importHalf.String())), []Breach{
		{"importchunk", importChunkKey(importHalf, 0), "no import has it"},
		{"importchunk", importChunkKey(importHalf, 1), "no import has it"},
	}},
	{"under another key", copyTo(bucketImport, []byte(importDone.String()), []byte("x")), []Breach{
		{"import", []byte("x"), "it stands under another key than its own"},
	}},
	{"of nothing", changeImport(importDone, func(im *Import) { im.Key = ImportKey{Window: damagedWindow.Add(1000)} }), []Breach{
		{"import", []byte(importDone.String()), "it stands under another key than its own"},
		{"import", []byte(importDone.String()), "it has no source or no name"},
		{"import", []byte(importDone.String()), "its window does not begin with a second"},
	}},
	{"ended before it began", changeImport(importDone, func(im *Import) { im.Ended = im.Began.Add(-time.Second) }), []Breach{
		{"import", []byte(importDone.String()), "it ended before it began, or never began"},
	}},
	{"ended with chunks", changeImport(importHalf, func(im *Import) { im.Ended = im.Began }), []Breach{
		{"import", []byte(importHalf.String()), "it has ended, and has chunks"},
	}},
	{"without a run", remove(bucketRunKey, []byte("t:-:half.csv")), []Breach{
		{"run", idKey(6), "its key t:-:half.csv is missing in bucket runkey, or leads elsewhere"},
		{"import", []byte(importHalf.String()), "it has not ended, and its run: run t:-:half.csv: not found"},
	}},
	{"not waited for", changeRun(6, func(r *Run) { r.Listing = false }), []Breach{
		{"import", []byte(importHalf.String()), "it has not ended, and run 6 does not wait for it"},
	}},
	{"more chunks", changeImport(importHalf, func(im *Import) { im.Chunks++ }), []Breach{
		{"importchunk", importChunkKey(importHalf, 2), "it is missing: its import has 3"},
	}},
	{"fewer chunks", changeImport(importHalf, func(im *Import) { im.Chunks-- }), []Breach{
		{"importchunk", importChunkKey(importHalf, 1), "no import has it"},
	}},
	{"chunk garbage", put(bucketImportChunk, importChunkKey(importHalf, 1), garbage), []Breach{
		{"importchunk", importChunkKey(importHalf, 1), "it cannot be read: record has an unknown version"},
	}},
	{"chunk without rows", put(bucketImportChunk, importChunkKey(importHalf, 1), ImportChunk{}.encode()), []Breach{
		{"importchunk", importChunkKey(importHalf, 1), "it has no rows"},
	}},
	{"chunk of nothing", put(bucketImportChunk, []byte("x"), ImportChunk{Rows: 1}.encode()), []Breach{
		{"importchunk", []byte("x"), "no import has it"},
	}},
}

// changeImport writes an import that is wrong and well sealed.
func changeImport(key ImportKey, change func(*Import)) func(*Tx) error {
	return func(tx *Tx) error {
		im, err := tx.Import(key)
		if err != nil {
			return err
		}
		change(im)
		return tx.put(bucketImport, []byte(key.String()), im.encode())
	}
}

var damagedValidator = validatorKey(JobKey{Source: "s", Target: "a"}, "")

// listDamage is to schedules and to kept lists.
var listDamage = []damage{
	{"schedule of garbage", put(bucketSchedule, []byte("s"), garbage), []Breach{
		{"schedule", []byte("s"), "it cannot be read: record has an unknown version"},
	}},
	{"schedule without a beginning", put(bucketSchedule, []byte("s"), (&Schedule{Spec: "@daily"}).encode()), []Breach{
		{"schedule", []byte("s"), "it has no beginning"},
	}},
	{"schedule of an unknown source", copyTo(bucketSchedule, []byte("s"), []byte("u")), []Breach{
		{"schedule", []byte("u"), "it is of a source that is unknown"},
	}},
	{"garbage", put(bucketList, idKey(1), garbage), []Breach{
		{"list", idKey(1), "it cannot be read: record has an unknown version"},
		{"list", chunkKey(1, 0), "it is of a list that is missing or cannot be read"},
		{"list", listRunKey(1, listedWindows[1]), "it is of a list that is missing or cannot be read"},
	}},
	{"missing", remove(bucketList, idKey(1)), []Breach{
		{"list", chunkKey(1, 0), "it is of a list that is missing or cannot be read"},
		{"list", listRunKey(1, listedWindows[1]), "it is of a list that is missing or cannot be read"},
	}},
	{"key is no id", put(bucketList, []byte("x"), garbage), []Breach{
		{"list", []byte("x"), "its key does not begin with a number from 1"},
	}},
	{"entry of no kind", put(bucketList, append(idKey(1), 'x'), nil), []Breach{
		{"list", append(idKey(1), 'x'), "its key is neither that of a chunk nor that of a run"},
	}},
	{"of an unknown kind", changeList(1, func(l *List) { l.Kind, l.Source = "odd", "" }), []Breach{
		{"list", idKey(1), "it is of no source"},
		{"list", idKey(1), "its kind is unknown: odd"},
		{"list", listRunKey(1, listedWindows[1]), "run 4 is of another source or window"},
	}},
	{"not whole", changeList(1, func(l *List) { l.Whole = false }), []Breach{
		{"list", idKey(1), "it is not whole, and says what is in it"},
	}},
	{"of more targets", changeList(1, func(l *List) { l.Targets++ }), []Breach{
		{"list", idKey(1), "its targets are not those that were read"},
	}},
	{"of other targets", put(bucketList, chunkKey(1, 0), PackTargets([]ListTarget{{}, {}}).encode()), []Breach{
		{"list", idKey(1), "its targets are not those that were read"},
	}},
	{"chunk of garbage", put(bucketList, chunkKey(1, 0), garbage), []Breach{
		{"list", chunkKey(1, 0), "it cannot be read: record has an unknown version"},
		{"list", idKey(1), "its targets are not those that were read"},
	}},
	{"chunk of half a target", put(bucketList, chunkKey(1, 0), ListChunk{frame: halfTarget}.encode()), []Breach{
		{"list", chunkKey(1, 0), "it cannot be read: record is cut short"},
		{"list", idKey(1), "its targets are not those that were read"},
	}},
	{"chunk missing", remove(bucketList, chunkKey(1, 0)), []Breach{
		{"list", idKey(1), "it does not have the chunks that it counts"},
		{"list", idKey(1), "its targets are not those that were read"},
	}},
	{"chunk at another place", func(tx *Tx) error {
		return errors.Join(copyTo(bucketList, chunkKey(1, 0), chunkKey(1, 1))(tx), tx.remove(bucketList, chunkKey(1, 0)))
	}, []Breach{
		{"list", chunkKey(1, 1), "the chunk before it is missing"},
		{"list", idKey(1), "it does not have the chunks that it counts"},
	}},
	{"offered to no run", put(bucketList, listRunKey(1, listedWindows[1]), idKey(99)), []Breach{
		{"list", listRunKey(1, listedWindows[1]), "it leads to no run"},
	}},
	{"offered to a run that has it", put(bucketList, listRunKey(1, listedWindows[0]), idKey(listedRun-1)), []Breach{
		{"list", listRunKey(1, listedWindows[0]), "run 3 does not want this list"},
	}},
	{"made more than there is", changeRun(listedRun, func(r *Run) { r.Made = 2 }), []Breach{
		{"list", listRunKey(1, listedWindows[1]), "run 4 has made 2 of its 1 chunks"},
	}},
	{"run wants another list", changeRun(listedRun-1, func(r *Run) { r.List, r.Listing = 1, true }), []Breach{
		{"run", idKey(listedRun - 1), "it wants list 1, which does not know of it"},
	}},
	{"sequence", put(bucketMeta, []byte("list"), idKey(0)), []Breach{
		{"meta", []byte("list"), "it says 0, and 1 is in use"},
	}},
}

// listedRun is the run that is yet to get its list.
const listedRun = 4

var halfTarget = func() []byte { enc, _ := codec(); return enc.EncodeAll([]byte{1, 1, 1}, nil) }()

// changeDamage is to the changes of sources and to what follows them.
var changeDamage = []damage{
	{"missing", remove(bucketChange, changeA), []Breach{
		{"obs", rowA, "its change 4 is missing in bucket change, or leads elsewhere"},
	}},
	{"to another row", put(bucketChange, changeGone, rowY[2:]), []Breach{
		{"obs", rowGone, "its change 1 is missing in bucket change, or leads elsewhere"},
		{"change", changeGone, "it leads to no observation of this number"},
	}},
	{"a second number", copyTo(bucketChange, changeA, changeKey("s", 1)), []Breach{
		{"change", changeKey("s", 1), "it leads to no observation of this number"},
	}},
	{"of no source", put(bucketChange, []byte("x"), nil), []Breach{
		{"change", []byte("x"), "its key is not a source and a number"},
	}},
	{"number to come", changeRow(rowA, func(o *Observation) { o.Seq = 9 }), []Breach{
		{"obs", rowA, "its change 9 is missing in bucket change, or leads elsewhere"},
		{"change", changeA, "it leads to no observation of this number"},
		{"meta", []byte("change"), "it says 8, and 9 is in use"},
	}},
	{"sequence", put(bucketMeta, []byte("change"), i64(3)), []Breach{
		{"meta", []byte("change"), "it says 3, and 8 is in use"},
	}},
	{"cursor: garbage", put(bucketCursor, cursorS, garbage), []Breach{
		{"cursor", cursorS, "it cannot be read: record has an unknown version"},
	}},
	{"cursor: a bit", changeRaw(bucketCursor, cursorS, withByte(8, 1)), []Breach{
		{"cursor", cursorS, "it cannot be read: record is not what was written: its checksum differs"},
	}},
	{"cursor: flag of 3", changeRecord(bucketCursor, cursorS, withByte(33, 3)), []Breach{
		{"cursor", cursorS, "it reads as a record that would be written differently"},
	}},
	{"cursor: of no file", copyTo(bucketCursor, cursorS, []byte("s")), []Breach{
		{"cursor", []byte("s"), "its key is not a source and a path"},
	}},
	{"cursor: ahead", changeCursor(func(f *FileCursor) { f.After.seq = 9 }), []Breach{
		{"meta", []byte("change"), "it says 8, and 9 is in use"},
	}},
	{"cursor: rows of no bytes", changeCursor(func(f *FileCursor) { f.Bytes = 0 }), []Breach{
		{"cursor", cursorS, "it says 1 rows in 0 bytes"},
	}},
	{"cursor: windows turned round", changeCursor(func(f *FileCursor) { f.FirstWindow, f.LastWindow = damagedDue, damagedWindow }), []Breach{
		{"cursor", cursorS, "its last window is before its first"},
	}},
}

func changeCursor(change func(*FileCursor)) func(*Tx) error {
	return func(tx *Tx) error {
		f, err := decodeFileCursor(cursorS, tx.get(bucketCursor, cursorS))
		if err != nil {
			return err
		}
		change(f)
		return tx.put(bucketCursor, cursorS, f.encode())
	}
}

// toSegment damages the file of the store's segment.
func toSegment(do func(path string) error) func(*Tx) error {
	return func(tx *Tx) error {
		r, err := tx.segment(1)
		if err != nil {
			return err
		}
		return do(filepath.Join(tx.segments.dir, r.name))
	}
}

func flipByte(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[at] ^= 1
	return os.WriteFile(path, b, 0o600)
}

// The keys of damagedStore, and where they stand under their jobs.
var (
	keyMade   = []byte("made")
	madeUnder = idempotencyJobKey(jobFailed, "made")
)

func changeIdempotency(key []byte, change func(*idempotencyRecord)) func(*Tx) error {
	return func(tx *Tx) error {
		r, err := tx.idempotency(string(key))
		if err != nil {
			return err
		}
		change(&r)
		return tx.put(bucketIdempotency, key, r.encode())
	}
}

// idempotencyDamage is to idempotency keys and to what finds them by their job.
var idempotencyDamage = []damage{
	{"garbage", put(bucketIdempotency, keyMade, garbage), []Breach{
		{"idem", keyMade, "it cannot be read: record has an unknown version"},
		{"idemjob", madeUnder, "it leads to no key of this job"},
	}},
	{"cut short", changeRecord(bucketIdempotency, keyMade, func(v []byte) []byte { return v[:30] }), []Breach{
		{"idem", keyMade, "it cannot be read: record is cut short"},
		{"idemjob", madeUnder, "it leads to no key of this job"},
	}},
	{"short hash", changeRecord(bucketIdempotency, keyMade, func(v []byte) []byte { v[18] = 31; return v[:50] }), []Breach{
		{"idem", keyMade, "it cannot be read: record is cut short"},
		{"idemjob", madeUnder, "it leads to no key of this job"},
	}},
	{"long hash", changeRecord(bucketIdempotency, keyMade, func(v []byte) []byte { v[18] = 33; return append(v, 0) }), []Breach{
		{"idem", keyMade, "it reads as a record that would be written differently"},
	}},
	{"flag of 3", changeRecord(bucketIdempotency, keyMade, withByte(17, 3)), []Breach{
		{"idem", keyMade, "it reads as a record that would be written differently"},
	}},
	{"no key", copyTo(bucketIdempotency, keyMade, []byte("\n")), []Breach{
		{"idem", []byte("\n"), "it cannot have come with a request"},
		{"idem", []byte("\n"), "it is missing in bucket idemjob, under job 5"},
	}},
	{"missing", remove(bucketIdempotency, keyMade), []Breach{
		{"idemjob", madeUnder, "it leads to no key of this job"},
	}},
	{"of no job", changeIdempotency(keyMade, func(r *idempotencyRecord) { r.job = 77 }), []Breach{
		{"idem", keyMade, "there is no job 77"},
		{"idem", keyMade, "it is missing in bucket idemjob, under job 77"},
		{"idemjob", madeUnder, "it leads to no key of this job"},
	}},
	{"of another job", changeIdempotency(keyMade, func(r *idempotencyRecord) { r.job = jobRescued }), []Breach{
		{"idem", keyMade, "job 2 was not made when it says"},
		{"idem", keyMade, "it is missing in bucket idemjob, under job 2"},
		{"idemjob", madeUnder, "it leads to no key of this job"},
	}},
	{"made at another time", changeIdempotency(keyMade, func(r *idempotencyRecord) { r.at = r.at.Add(1e9) }), []Breach{
		{"idem", keyMade, "job 5 was not made when it says"},
	}},
	{"not under its job", remove(bucketIdempotencyJob, madeUnder), []Breach{
		{"idem", keyMade, "it is missing in bucket idemjob, under job 5"},
	}},
	{"under another job", put(bucketIdempotencyJob, idempotencyJobKey(jobRunning, "made"), nil), []Breach{
		{"idemjob", idempotencyJobKey(jobRunning, "made"), "it leads to no key of this job"},
	}},
	{"a value under its job", put(bucketIdempotencyJob, madeUnder, []byte{0}), []Breach{
		{"idemjob", madeUnder, "it has a value"},
	}},
	{"no key under a job", put(bucketIdempotencyJob, []byte("x"), nil), []Breach{
		{"idemjob", []byte("x"), "it leads to no key of this job"},
	}},
}

func changeQuarantine(job uint64, change func(*Quarantine)) func(*Tx) error {
	return func(tx *Tx) error {
		q, err := tx.Quarantine(job)
		if err != nil {
			return err
		}
		change(q)
		return tx.put(bucketQuarantine, idKey(job), q.encode())
	}
}

// eventUnfit is page.quarantined of jobUnfit.
const eventUnfit = 17

// quarantineDamage is to what is in quarantine, to its event and to attempts that
// read a page again.
var quarantineDamage = []damage{
	{"garbage", put(bucketQuarantine, idKey(jobUnfit), garbage), []Breach{
		{"quarantine", idKey(jobUnfit), "it cannot be read: record has an unknown version"},
		{"counter", counterKey("v", "quarantine"), "it says 2, a recount gives 1"},
	}},
	{"a bit", changeRaw(bucketQuarantine, idKey(jobUnfit), withByte(9, 1)), []Breach{
		{"quarantine", idKey(jobUnfit), "it cannot be read: record is not what was written: its checksum differs"},
		{"counter", counterKey("v", "quarantine"), "it says 2, a recount gives 1"},
	}},
	{"cut short", changeRecord(bucketQuarantine, idKey(jobUnfit), func(v []byte) []byte { return v[:40] }), []Breach{
		{"quarantine", idKey(jobUnfit), "it cannot be read: record is cut short"},
		{"counter", counterKey("v", "quarantine"), "it says 2, a recount gives 1"},
	}},
	{"missing", remove(bucketQuarantine, idKey(jobUnfit)), []Breach{
		{"counter", counterKey("v", "quarantine"), "it says 2, a recount gives 1"},
	}},
	{"key is no id", copyTo(bucketQuarantine, idKey(jobUnfit), []byte("x")), []Breach{
		{"quarantine", []byte("x"), "its key is not an id from 1"},
	}},
	{"of no job", copyTo(bucketQuarantine, idKey(jobUnfit), idKey(77)), []Breach{
		{"quarantine", idKey(77), "there is no job 77"},
	}},
	{"of no attempt", changeQuarantine(jobUnfit, func(q *Quarantine) { q.Generation = 2 }), []Breach{
		{"quarantine", idKey(jobUnfit), "there is no attempt 2 of job 12"},
	}},
	{"of an older attempt", changeQuarantine(jobReparsed, func(q *Quarantine) { q.Generation = 1 }), []Breach{
		{"quarantine", idKey(jobReparsed), "its job was completed since, by another attempt"},
	}},
	{"of an attempt that was released", copyTo(bucketQuarantine, idKey(jobUnfit), idKey(jobPending)), []Breach{
		{"quarantine", idKey(jobPending), "it tells of more attempts than its job has"},
		{"quarantine", idKey(jobPending), "attempt 1 of job 6 neither failed nor completed"},
		{"counter", counterKey("s", "quarantine"), "it is missing, a recount gives 1"},
	}},
	{"of nothing", changeQuarantine(jobUnfit, func(q *Quarantine) { q.Problems, q.Version, q.Since = nil, 0, noTime }), []Breach{
		{"quarantine", idKey(jobUnfit), "it has no problem"},
		{"quarantine", idKey(jobUnfit), "it is of no version of the rules"},
		{"quarantine", idKey(jobUnfit), "it is set aside since no time"},
	}},
	{"problems left out", changeQuarantine(jobUnfit, func(q *Quarantine) { q.Problems[0].Reason, q.More = "", 1 }), []Breach{
		{"quarantine", idKey(jobUnfit), "it has a problem for no reason"},
		{"quarantine", idKey(jobUnfit), "it has more problems than are kept, or counts some that it could keep"},
	}},
	{"event: another version", changeEvent(eventUnfit, says(`"parser_version":1`, `"parser_version":2`)), []Breach{
		{"event", idKey(eventUnfit), "its id is not that of what it tells"},
	}},
	{"event: another state", changeEvent(eventUnfit, says(`"failed"`, `"pending"`)), []Breach{
		{"event", idKey(eventUnfit), "its type and the state it tells of contradict each other"},
	}},
	{"event: more than it says", changeEvent(eventUnfit, says(`"more":0`, `"more":0,"less":1`)), []Breach{
		{"event", idKey(eventUnfit), "it reads as a record that would be written differently"},
	}},
	{"attempt: of no kind", changeAttempt(jobReparsed, 1, func(a *Attempt) { a.Kind = "odd" }), []Breach{
		{"attempt", attemptKey(jobReparsed, 1), "its kind is unknown: odd"},
	}},
	{"attempt: read again by an owner", changeAttempt(jobReparsed, 2, func(a *Attempt) { a.Owner = "me" }), []Breach{
		{"attempt", attemptKey(jobReparsed, 2), "it read a kept page, and did not complete, had an owner or moved bytes"},
	}},
	{"attempt: fetched by nobody", changeAttempt(jobReparsed, 2, func(a *Attempt) { a.Kind = "" }), []Breach{
		{"attempt", attemptKey(jobReparsed, 2), "it fetched its page at another time than its own"},
		{"attempt", attemptKey(jobReparsed, 2), "it has no owner"},
		{"job", idKey(jobReparsed), "2 of its attempts count, it says 1"},
		{"job", idKey(jobReparsed), "its tries, its rescues and the bytes it spent are not those of its newest attempts"},
		{"counter", counterKey("v", "attempts/complete"), "it says 1, a recount gives 2"},
		{"counter", counterKey("v", "attempts/counted"), "it says 2, a recount gives 3"},
		{"counter", counterKey("v", "duration/"), "the counters under it hold -1 attempts against a recount"},
	}},
}

// The events of source v: field price has drifted, and the source has paused for it.
const (
	eventDrifted = 19
	eventPaused  = 20
)

func changeDrift(change func(*Drift)) func(*Tx) error {
	return func(tx *Tx) error {
		d, err := decodeDrift(driftV, tx.get(bucketDrift, driftV))
		if err != nil {
			return err
		}
		change(d)
		return tx.put(bucketDrift, driftV, d.encode())
	}
}

// driftV is the place of source v, at its host, under version 1 of its rules.
var driftV = driftKey("v", 1, laneV)

// driftDamage is to counts of pages, and to events of what they show.
var driftDamage = []damage{
	{"garbage", put(bucketDrift, driftV, garbage), []Breach{
		{"drift", driftV, "it cannot be read: record has an unknown version"},
	}},
	{"a bit", changeRaw(bucketDrift, driftV, withByte(9, 1)), []Breach{
		{"drift", driftV, "it cannot be read: record is not what was written: its checksum differs"},
	}},
	{"cut short", changeRecord(bucketDrift, driftV, func(v []byte) []byte { return v[:40] }), []Breach{
		{"drift", driftV, "it cannot be read: record is cut short"},
	}},
	{"flag of 3", changeRecord(bucketDrift, driftV, withByte(20, 3)), []Breach{
		{"drift", driftV, "it reads as a record that would be written differently"},
	}},
	{"key of schema 5", copyTo(bucketDrift, driftV, driftPrefix("v", 1)), []Breach{
		{"drift", driftPrefix("v", 1), "its key is not a source, a version of rules and a lane"},
	}},
	{"of version 0", copyTo(bucketDrift, driftV, driftKey("v", 0, laneV)), []Breach{
		{"drift", driftKey("v", 0, laneV), "its key is not a source, a version of rules and a lane"},
	}},
	{"of another version", copyTo(bucketDrift, driftV, driftKey("v", 2, laneV)), []Breach{
		{"drift", driftKey("v", 2, laneV), "attempt 1 of job 13 read no page by version 2 of the rules"},
	}},
	{"of another source", copyTo(bucketDrift, driftV, driftKey("s", 1, 1)), []Breach{
		{"drift", driftKey("s", 1, 1), `a page of it is of attempt 1 of job 13, which is of source "v" and had 2`},
	}},
	{"in a lane of another source", copyTo(bucketDrift, driftV, driftKey("v", 1, 1)), []Breach{
		{"drift", driftKey("v", 1, 1), `it is of source "v", its lane 1 of "s"`},
		{"drift", driftKey("v", 1, 1), "attempt 1 of job 13 was in lane 6"},
	}},
	{"in no lane", copyTo(bucketDrift, driftV, driftKey("v", 1, 77)), []Breach{
		{"drift", driftKey("v", 1, 77), `it is of source "v", its lane 77 of ""`},
		{"drift", driftKey("v", 1, 77), "attempt 1 of job 13 was in lane 6"},
	}},
	{"of nothing", changeDrift(func(d *Drift) { d.Fields, d.Pages = nil, nil }), []Breach{
		{"drift", driftV, "it has no field"},
		{"drift", driftV, "it has no page, or more than are kept"},
		{"drift", driftV, "it is paused for no field of it, or has one for that and is not paused"},
	}},
	{"a field twice", changeDrift(func(d *Drift) { d.Fields[0].Name = "price" }), []Breach{
		{"drift", driftV, "it has a field twice"},
	}},
	{"more pages than are kept", changeDrift(func(d *Drift) {
		for range 5 {
			d.Pages = append(d.Pages, d.Pages...)
		}
	}), []Breach{
		{"drift", driftV, "it has no page, or more than are kept"},
	}},
	{"paused for another field", changeDrift(func(d *Drift) { d.PausedFor = "other" }), []Breach{
		{"drift", driftV, "it is paused for no field of it, or has one for that and is not paused"},
	}},
	{"paused since no time", changeDrift(func(d *Drift) { d.Paused = noTime }), []Breach{
		{"drift", driftV, "it is paused for no field of it, or has one for that and is not paused"},
	}},
	{"a past of more than all", changeDrift(func(d *Drift) { d.Fields[1].Past.Sum++ }), []Breach{
		{"drift", driftV, "field price: its pages have more than all of it"},
	}},
	{"a past without records", changeDrift(func(d *Drift) { d.Fields[1].Past.Records = 3 }), []Breach{
		{"drift", driftV, "field price: its pages had fewer records than one each"},
	}},
	{"drifted for longer than there are pages", changeDrift(func(d *Drift) { d.Fields[1].Run = 21 }), []Breach{
		{"drift", driftV, "field price: more pages lack it than there are"},
	}},
	{"drifted since no time", changeDrift(func(d *Drift) { d.Fields[1].Since = noTime }), []Breach{
		{"drift", driftV, "field price: it has drifted since no time or from no share, or has these and has not"},
	}},
	{"not drifted, from a share", changeDrift(func(d *Drift) { d.Fields[0].Before = 1 }), []Breach{
		{"drift", driftV, "field : it has drifted since no time or from no share, or has these and has not"},
	}},
	{"a page of no attempt", changeDrift(func(d *Drift) { d.Pages[0].Generation = 0 }), []Breach{
		{"drift", driftV, "a page of it is of no job, no attempt or no time"},
	}},
	{"a page without records", changeDrift(func(d *Drift) { d.Pages[0].Records = 0 }), []Breach{
		{"drift", driftV, "a page of it has no records"},
	}},
	{"a page with more than all", changeDrift(func(d *Drift) { d.Pages[0].Shares[1] = Whole + 1 }), []Breach{
		{"drift", driftV, "a page of it has more than all of a field"},
	}},
	{"a page of a job that never was", changeDrift(func(d *Drift) { d.Pages[0].Job = 77 }), []Breach{
		{"meta", []byte("job"), "it says 13, and 77 is in use"},
	}},
	{"a page of a job of another source", changeDrift(func(d *Drift) { d.Pages[0].Job = jobPending }), []Breach{
		{"drift", driftV, `a page of it is of attempt 1 of job 6, which is of source "s" and had 1`},
	}},
	{"a page of an attempt that never was", changeDrift(func(d *Drift) { d.Pages[0].Generation = 9 }), []Breach{
		{"drift", driftV, `a page of it is of attempt 9 of job 13, which is of source "v" and had 2`},
	}},
	{"a page that was read again", changeDrift(func(d *Drift) { d.Pages[0].Generation = 2 }), []Breach{
		{"drift", driftV, "attempt 2 of job 13 read no page by version 1 of the rules"},
	}},
	{"event: no JSON", changeEvent(eventDrifted, func(e *Event) { e.Data = garbage }), []Breach{
		{"event", idKey(eventDrifted), "its data is not that of a field that has drifted: invalid character 'c' looking for beginning of value"},
	}},
	{"event: another field", changeEvent(eventDrifted, says(`"price"`, `"title"`)), []Breach{
		{"event", idKey(eventDrifted), "its id is not that of what it tells"},
	}},
	{"event: the page as a whole", changeEvent(eventPaused, says(`"price"`, `null`)), []Breach{
		{"event", idKey(eventPaused), "its id is not that of what it tells"},
	}},
	{"event: more than it says", changeEvent(eventPaused, says(`"paused":true`, `"paused":true,"more":1`)), []Breach{
		{"event", idKey(eventPaused), "it reads as a record that would be written differently"},
	}},
	{"event: of another source", changeEvent(eventPaused, func(e *Event) { e.Key = "s" }), []Breach{
		{"event", idKey(eventPaused), "it tells of another source than its key"},
	}},
	{"event: of another job", changeEvent(eventPaused, says(`"id":12`, `"id":11`)), []Breach{
		{"event", idKey(eventPaused), "it tells of another job than the one that it is of"},
	}},
	{"event: of more attempts", changeEvent(eventPaused, says(`"attempts":1`, `"attempts":3`)), []Breach{
		{"event", idKey(eventPaused), "its id is not that of what it tells"},
		{"event", idKey(eventPaused), "it tells of more attempts than its job has"},
	}},
}
