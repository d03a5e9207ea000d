// Package delivery brings events from the store's outbox to sinks: webhooks,
// files, commands and NATS streams.
//
// It answers for: which event goes when (in order per observation key, across
// keys side by side, bounded in flight), for how long and how often one is tried
// again, sinks that are down and sinks that want no more, and what each kind of
// sink does with an event. It leaves to others: which events there are and who
// wants them, and remembering what became of them (storage).
//
// # Invariants
//
//   - Nothing is sent that is not durable: events are read from the store, and a
//     delivery is noted there before it begins (storage.Tx.TakeEvents).
//   - An event is marked delivered only after its sink has acknowledged it. What
//     was under way when a process died is sent again, under the same id.
//   - Of one key at most one event is under way to a sink, and none overtakes
//     another but one that a person sends again.
//   - A slow or dead sink holds back no other, and never the collecting.
//   - Only loops ask the time; what they call gets it as an argument. A webhook
//     asks as well: its signature says when it was made.
package delivery
