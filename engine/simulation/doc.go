// Package simulation tests the real engine and the real store in worlds that a
// seed makes: a site and a gateway that misbehave, a disk that fills up, fails
// or stops, a clock that jumps, a process that dies at any boundary of a
// transaction and starts again, another that takes over while it still lives.
// It holds no code but tests.
//
//	go test ./engine/simulation -seeds 2000     seeds 1 to 2000
//	go test ./engine/simulation -run TestSimulation -seed 17 -v
//
// # A world
//
// One world is one testing/synctest bubble: its time stands still while
// anything can run and else jumps to the next timer, so hours of it cost
// milliseconds, and what a seed did once it does again. A world has
//
//   - a catalog of jobs, the same in every world (catalog_test.go);
//   - a site with a gateway before it, which answers by URL and, faults aside,
//     always the same (site_test.go);
//   - a disk: a store file whose commits take a little time of the bubble, and
//     which keeps, when the power goes, what was durable then (disk_test.go), as
//     do the kept pages beside it (pages_test.go);
//   - a clock that is the bubble's and a jump or two (clock_test.go);
//   - one life after another of the process that collects: a store, an engine,
//     one who submits jobs (life_test.go), and what is to befall it
//     (plan_test.go);
//   - consumers of events behind the engine's own dispatcher, which refuse, hang,
//     keep an event without a word or want no more, and a person who looks after
//     their sinks (consumer_test.go);
//   - a ledger of what is durable, which reads the store after each commit and
//     wants an explanation of every change (ledger_test.go, outbox_test.go).
//
// Each fault is drawn from a hash of the seed and of what it is drawn for, such
// as a URL and the number of its request. So a change that moves one thing in
// time leaves the others as they were, and a seed tells a similar story before
// and after it.
//
// # What is checked
//
// At each commit: every job has made only moves that the table of transitions
// knows, none before its time, with one generation and one attempt for each
// claim; an outcome is the one that the site gave to that very claim; an
// observation has changed only with the job that it came from, and its event
// with it; nothing terminal moved.
//
// At each request: its job is claimed durably and has not been asked for under
// that claim before. In particular nobody asks for what is complete.
//
// At each delivery: the store knows that it is about to begin. At each arrival:
// the event was durable before; it arrives no more often than once and once more
// for each delivery noted as ambiguous and each time that a person sent it again;
// but for what was given up or sent again, none of its key arrives before those
// that were committed before it. An event is noted as delivered only after its
// consumer has said so.
//
// After each crash: Check is clean, and the store holds exactly what the ledger
// says. A store that has stopped writes nothing more, not even when closed.
// After a stop no lease is held, and no delivery is under way.
//
// At the end: the exports are those of a calm world, jobs are in its states for
// its reasons, each event has arrived at least once under its id, each job
// was completed once, and no job counts more attempts than the site gave it
// failures, and the one that ended it.
//
// # What is not simulated
//
// Sockets, TLS, fsync itself, torn pages and a second process are tested where
// they are real. The clock here is a wall clock alone: times that a process
// keeps in memory carry no monotonic reading as they do outside, so after a
// jump a world is harsher than life. The order of two goroutines at one and the
// same instant is the scheduler's; disk, site and clock see to it that what
// matters is never at the same one.
package simulation
