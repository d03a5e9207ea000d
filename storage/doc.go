// Package storage is Semel's store: jobs, attempts, leases, observations and
// outbox events in one bbolt file, so that one transaction can hold an outcome
// and all that follows from it. It is the only user of bbolt. The pages that
// attempts keep stand in segments beside that file.
//
// It answers for: the five states and every transition between them, the fence
// (owner and generation are compared inside the transaction that writes), one
// job per key, one observation per key, the order in which a job is handed
// out, counters, and finding damage (Check). It leaves to others: when
// something is due, how often to retry, what a category means for policy, and
// everything about pages and proxies.
//
// # Buckets
//
// All buckets are flat and top level. Integers are big-endian, times are
// microseconds since 1970 (windows: seconds, shifted so that bytes sort as
// times do and "none" sorts first), text inside a key is escaped and ended as
// appendText says, so that keys sort as the tuples they stand for.
//
//	meta     name                                       value
//	  ├ schema                                          u32, see migrate.go
//	  ├ job, event, lane, run, list, change             u64, last id handed out
//	  ├ days                                            first day whose daily counts are kept, such as "2026-04-23"
//	source   source name                                identity and rules as last accepted, with what tells a change of them (JSON)
//	lane     host 0 source, 0 country if there is one   lane id u32
//	lanename lane id u32                                the same
//	job      id u64                                     Job
//	key      window u64 | job key text                  job id u64
//	ready    lane u32 | class u8 | 127-priority | id    -          exactly the pending jobs
//	wait     due u64 | id                               -          exactly the retryable jobs
//	lease    end u64 | id                               -          exactly the running jobs
//	attempt  id | generation u32                        Attempt
//	obs      source 0 | record key | country | window | version | scope
//	                                                    Observation
//	event    seq u64                                    Event
//	outbox   sink 0 | seq u64                           -          exactly the pending dispatches
//	counter  source 0 | metric                          i64, see counter.go
//	robots   origin                                     fetched at, status, body
//	host     host                                       not asked before this time, u64
//	page     SHA-256 of a kept page                     its segment, place and size there, attempts that name it
//	segment  segment id u32                             its file, size and bytes in use (segment.go)
//	validator
//	         source 0 target | country         ETag, Last-Modified and the attempt whose page they are of
//	run      run id u64                                 Run
//	runkey   run key text                               run id u64
//	idem     idempotency key                            its first request: time, SHA-256, job, whether that was made
//	idemjob  job id u64 | idempotency key               -
//	schedule source name                                Schedule: text, zone, since when, last tick
//	list     list id u64                                List of targets, kept while it is read and made
//	  ├ list id u64 | 'c' | chunk u32                   some of its targets, compressed
//	  ├ list id u64 | 'r' | window u64                  run id u64, of a run that it is yet to be offered to
//	change   source 0 | seq u64                         key of an observation in obs, without the source
//	cursor   source 0 | absolute path                   FileCursor
//	import   source:window:name, as in a run's key      Import
//	importchunk
//	         key of an import 0 | chunk u32, from 0     ImportChunk
//	staged   run id | job id                            what the job has brought, and waits for its run (stage.go)
//	staged   run id | job id | key in obs               Observation that waits
//	live     run id | job id                            what the job has brought, and stands
//	live     run id | job id | key in obs               -          it is this job's
//	dispatch event seq u64 | sink                       Dispatch, one per sink that wants the event
//	dead     sink 0 | seq u64                           -          exactly the dead dispatches
//	sink     sink                                       Sink
//	jobevent job id u64 | event seq u64                 -          the event is of an outcome of the job
//	quarantine
//	         job id u64                                 Quarantine: why a page of the job did not fit the rules
//	drift    source 0 | version u32 | lane u32          Drift: how well the last pages of the lane fit the rules, and those before
//
// Keys longer than 128 bytes in bucket key keep their first 96 bytes and the
// xxhash of the whole; the text stands in the job and is compared, so a
// collision is an error inside the transaction and never a wrong answer.
//
// Records but for sources and counters end with a checksum (codec.go): bbolt
// has none, and would show a damaged value as it shows any other.
//
// # Invariants
//
//   - A job stands in exactly one of ready, wait and lease, or in none of them
//     when it is complete or failed. A running job without an ending lease
//     cannot be written down.
//   - Only methods that go through (*Tx).move change a state, and the table
//     there is the only list of transitions.
//   - A job with a window belongs to the run of its source and window, unless
//     an older schema made it; a run counts its jobs as they are.
//   - A run that is offered a list leads to it and is led to by it, a list that
//     was read whole is just what was read, and no job is made of any other.
//   - A chunk of an import is written with the jobs that its rows became; the
//     chunks of one have no gap, and go when it ends.
//   - A run whose jobs have staged rows has work ahead or is held. A row with a
//     window in its key is one job's of that window's run, and bucket live says
//     whose. What is staged or stands of a job is what one attempt of it brought, and
//     says which and by which version of the rules, unless an older schema wrote it.
//   - A page that an attempt names is durable in its segment before the
//     transaction that names it.
//   - A validator leads to the last attempt that fetched what completed a job of its
//     target, and that attempt's page is kept.
//   - Prune deletes no job without a window, none that is open, has staged rows or a
//     page in quarantine, is what an observation came from, what an idempotency key
//     leads to or what a pending event is of that no person sent back, and no event
//     that is pending or dead at a sink.
//   - What is in quarantine is of the attempt that read the page, which stays with
//     its page, where it was kept, until it is let go: by a commit of the job, or a
//     person.
//   - A page is counted for drift in the transaction of its job's outcome, once, in the
//     lane of the job and under the rules that read it, unless these had failed it before.
//     Jobs of a source that pauses for drift in any of its lanes are handed out by
//     nobody who asks; the store itself does not hold them back.
//   - An idempotency key leads to a job that is there, and that is as old as
//     the key where its first request made it.
//   - An observation is written only by the commit that completes its job, or
//     its run (WriteReplace), or of a page of its job that is read again (ReparseJob):
//     an attempt of that job completed with its page and its version of the rules.
//   - A job's attempts are numbered from 1 without a gap up to its generation;
//     the oldest may have been pruned, and the job says up to which.
//     What it counts and what limits compare is the sum of those that fetched, and its state
//     is what the last one, or a person, brought it to.
//   - A job that may have sent a step which must not be repeated says so (Sent)
//     until it is complete, a person retries it, or the step is known not to have
//     been sent. Such a job is not retryable.
//   - An observation stands once in bucket change, under the number that its last
//     change of content was given, unless an older schema wrote it.
//   - What may have reached a sink is noted before it is sent (Sink.Taken), so
//     that a process which dies leaves no delivery that nobody knows of. It is
//     pending until that delivery has ended, unless a person discards it.
//   - An event's id follows from its content. Its observation or job is there,
//     in the revision and with the attempts that it tells of, or later ones;
//     the job of an event that is pending nowhere, or only since a person sent it
//     back, may have been pruned, and what became of a row whose window was
//     replaced since is not compared.
//   - A sequence is never behind a number in use, keys and lanes lead both
//     ways, and every record is the bytes that it would be written as.
//   - Counters equal a recount of the records and of what was pruned, but for
//     duplicates, unchanged records and stale commits, which leave nothing behind,
//     for attempts by day, and for days before those kept.
//   - Check tests each of these and says where it does not hold.
//   - No credential ever reaches this package.
//
// # Windows that are replaced
//
// Under WriteReplace all rows of a window change in one transaction, for which
// other writers wait. Measured with 100,000 rows of 350 bytes: 2.5 s of a core
// and 210 MB of memory while it goes on, in proportion to the rows. That is meant
// to be the order of a window; what has more is better split into sources. The pages
// of a window that are read again are one transaction, too.
//
// # Transactions
//
// Update queues a function for the single writer. The writer runs all that are
// waiting in one bbolt transaction, so that they share its two fsyncs; each
// runs exactly once, sees what those before it wrote, and is undone alone if it
// returns an error or panics. Sequences, counters, runs and drifts, which most of them
// move, are written once for all. Update returns after the commit is durable. An
// error of the commit itself means that the outcome is unknown: the store then
// answers every call with ErrStopped and must be opened again.
package storage
