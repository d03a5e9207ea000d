package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

func (a *app) outboxCommand() *cobra.Command {
	cmd := a.command(&cobra.Command{
		Use:   "outbox [list | retry | discard]",
		Short: "List events that wait for their sinks; send some again, or give them up",
		Long: `List the events that wait for a sink, and those that were given up for it (dead):
semel outbox list without flags.

An event is one fact under one id, and each sink that wants it gets it at least
once. Its states at a sink are

  pending    it is sent as soon as its turn comes, or at the time shown
  delivered  the sink has said so, or that it had it before
  dead       its limit is used up: it waits for semel outbox retry or discard
  discarded  a person has given it up

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel outbox\n  semel outbox list --sink alerts --state dead --json\n  semel outbox retry --sink alerts\n  semel outbox discard 12",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.listOutbox(ctx, api.OutboxFilter{}) })
	cmd.AddCommand(a.listOutboxCommand(), a.retryEventsCommand(), a.discardEventsCommand())
	return cmd
}

// eventFlags say which events are meant.
type eventFlags struct{ sink, event, from, to string }

func (e *eventFlags) register(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.sink, "sink", "", "only at this `SINK`")
	cmd.Flags().StringVar(&e.event, "type", "", "only events of this `TYPE`, such as job.failed")
	cmd.Flags().StringVar(&e.from, "from", "", "only events committed at this `TIME` or later")
	cmd.Flags().StringVar(&e.to, "to", "", "only events committed before this `TIME`")
	completeFlag(cmd, "sink", a.completeSink)
	completeFlag(cmd, "type", cobra.FixedCompletions(storage.EventTypes, cobra.ShellCompDirectiveNoFileComp))
}

func (e *eventFlags) filter() (f api.EventFilter, err error) {
	f.Sink = e.sink
	if f.Type, err = parseWord("--type", e.event, storage.EventTypes); err != nil {
		return f, err
	}
	if f.From.Time, err = parseTimeFlag("--from", e.from); err != nil {
		return f, err
	}
	if f.To.Time, err = parseTimeFlag("--to", e.to); err != nil {
		return f, err
	}
	if !f.To.IsZero() && !f.From.Before(f.To.Time) {
		return f, usage("", "--to must be later than --from")
	}
	return f, nil
}

// parseTimeFlag reads the time of a flag; "" is none.
func parseTimeFlag(flag, text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if t, err = intake.ParseTime(text); err != nil {
		err = usage("", "%s: %v", flag, err)
	}
	return t, err
}

func (a *app) listOutboxCommand() *cobra.Command {
	var events eventFlags
	var state string
	var limit int
	cmd := a.command(&cobra.Command{
		Use:   "list [--sink SINK] [--state STATE] [--type TYPE] [--from TIME] [--to TIME] [--limit N]",
		Short: "List events at their sinks, pending and dead ones unless told otherwise",
		Long: `List events at their sinks, in the order of their commits: an event has a line for
each sink that wanted it. OUTCOME is that of the last delivery: delivered,
deduplicated (the sink had it before), retry (it has not arrived, or the sink says
that it failed) or ambiguous (it may have arrived, and the sink has not said so).
TRIES are deliveries that count against the sink's limit, AMBIGUOUS all that were so.
WHEN is the time before which a pending event is not sent, and of others that of the
last delivery.

STATE is pending, dead, delivered, discarded or all; without it those are listed
that are pending or dead. Events that retain.events has forgotten are in no list.
TIME is an RFC 3339 instant, or a date, which stands for its beginning in UTC.

` + exits(exitDone, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel outbox list --sink alerts --state dead\n  semel outbox list --state all --from 2026-04-23 --to 2026-04-24 --json",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error {
		filter, err := events.filter()
		if err != nil {
			return err
		}
		word, err := parseWord("--state", state, dispatchWords())
		if err != nil {
			return err
		}
		if limit < 0 {
			return usage("leave it out for no limit", "--limit must be at least 0 (got %d)", limit)
		}
		return a.listOutbox(ctx, api.OutboxFilter{EventFilter: filter, State: storage.DispatchState(word), Limit: limit})
	})
	events.register(a, cmd)
	cmd.Flags().StringVar(&state, "state", "", "only those in this `STATE` (default pending and dead)")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most `N` lines (default no limit)")
	completeFlag(cmd, "state", cobra.FixedCompletions(dispatchWords(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func dispatchWords() []string {
	var words []string
	for _, s := range storage.DispatchStates {
		words = append(words, string(s))
	}
	return append(words, string(api.StateAll))
}

func (a *app) listOutbox(ctx context.Context, f api.OutboxFilter) error {
	return a.reading(ctx, func(c *config.Config, service api.Service) error {
		head := "EVENT\tSTATE\tOUTCOME\tTRIES\tAMBIGUOUS\tWHEN\tSINK\tTYPE\tKEY\tREASON"
		err := list(a, head, dispatchRow, func(show func(api.Dispatched) error) error { return service.Outbox(ctx, f, show) })
		if errors.Is(err, api.ErrUnknownSink) {
			return sinkFault(c, f.Sink)
		}
		return err
	})
}

func dispatchRow(d api.Dispatched) string {
	at := d.LastAt
	if d.State == storage.DispatchPending {
		at = d.NextAt
	}
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s", d.Number, d.State, orDash(d.Outcome),
		d.Tries, d.Ambiguous, timeText(at), d.Sink, d.Type, d.Key, dash(d.Reason))
}

func (a *app) retryEventsCommand() *cobra.Command {
	var events eventFlags
	var delivered bool
	cmd := a.command(&cobra.Command{
		Use:   "retry {EVENT... [--sink SINK] | [--sink SINK] [--type TYPE] [--from TIME] [--to TIME]} [--delivered]",
		Short: "Send dead events again, or delivered ones",
		Long: `Send events again under the same ids, their limits counted anew: those named by
number or id, all of them or none, at all their sinks or at one; or all dead ones
that the flags name, of which one at least must be given. Those that are named may
be discarded, too, and where they are pending they are sent at once. Of an id that
several events have, the newest is meant.

With --delivered, also events that were delivered: a range of them, say, that the
consumer has lost. It still knows them by their ids. What retain.events has
forgotten cannot be sent any more.

A sink that was stopped, since it wanted nothing more, is started again: one that
--sink names, and any that has an event sent again.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel outbox retry 12 15\n  semel outbox retry --sink alerts\n  semel outbox retry --sink alerts --delivered --from 2026-04-23 --to 2026-04-24",
	}, func(ctx context.Context, args []string) error {
		s, err := events.selection(args)
		if err != nil {
			return err
		}
		if delivered {
			s.Also = storage.DispatchDelivered
		}
		return a.changeEvents(ctx, s, "retried", "delivered ones are sent again with --delivered", api.Service.RetryEvents)
	})
	events.register(a, cmd)
	cmd.Flags().BoolVar(&delivered, "delivered", false, "also events that were delivered")
	return cmd
}

func (a *app) discardEventsCommand() *cobra.Command {
	var events eventFlags
	var pending bool
	cmd := a.command(&cobra.Command{
		Use:   "discard {EVENT... [--sink SINK] | [--sink SINK] [--type TYPE] [--from TIME] [--to TIME] [--pending]}",
		Short: "Give up dead events, or pending ones",
		Long: `Give up events: those named by number or id, pending or dead, all of them or none,
at all their sinks or at one; or all dead ones that the flags name, of which one at
least must be given. Of an id that several events have, the newest is meant. A
delivery that is under way may still arrive.

With --pending, also events that still wait to be sent: those of a sink that was
taken out of the config, say, which are kept until then.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel outbox discard 12\n  semel outbox discard --sink alerts --to 2026-04-23\n  semel outbox discard --sink gone --pending",
	}, func(ctx context.Context, args []string) error {
		s, err := events.selection(args)
		if err != nil {
			return err
		}
		if pending {
			s.Also = storage.DispatchPending
		}
		return a.changeEvents(ctx, s, "discarded", "only pending and dead events can be discarded", api.Service.DiscardEvents)
	})
	events.register(a, cmd)
	cmd.Flags().BoolVar(&pending, "pending", false, "also events that still wait to be sent")
	return cmd
}

// selection is what the arguments and flags mean, which must mean something.
func (e *eventFlags) selection(refs []string) (s api.EventSelection, err error) {
	s.Refs = refs
	if s.EventFilter, err = e.filter(); err != nil {
		return s, err
	}
	switch {
	case len(refs) > 0 && s.EventFilter != (api.EventFilter{Sink: e.sink}):
		return s, usage("", "give events, with --sink if you like, or --type, --from and --to")
	case len(refs) == 0 && s.EventFilter == (api.EventFilter{}):
		return s, usage("semel outbox lists what waits", "say which events, or --sink, --type, --from or --to for all of them")
	}
	return s, nil
}

// changeEvents applies a change and prints how many events it was at each sink.
func (a *app) changeEvents(ctx context.Context, s api.EventSelection, done, hint string, change func(api.Service, context.Context, api.EventSelection) (api.EventsChanged, error)) error {
	return a.writing(ctx, func(c *config.Config, service api.Service) error {
		changed, err := change(service, ctx, s)
		switch {
		case errors.Is(err, api.ErrUnknownSink):
			return sinkFault(c, s.Sink)
		case errors.Is(err, storage.ErrNotFound):
			return &fault{exitFailed, err, "semel outbox list --state all lists the events"}
		case errors.Is(err, storage.ErrTransition):
			return &fault{exitFailed, err, hint}
		case err != nil:
			return err
		case a.json:
			return a.line(changed)
		}
		a.changedText(changed, done)
		return nil
	})
}

func (a *app) changedText(changed api.EventsChanged, done string) {
	if len(changed.Sinks) == 0 {
		a.notef("no event is meant: nothing was changed")
	}
	for _, sink := range slices.Sorted(maps.Keys(changed.Sinks)) {
		a.printf("%s %s at sink %s\n", done, count(changed.Sinks[sink], "event"), sink)
	}
	for _, sink := range changed.Started {
		a.printf("started sink %s\n", sink)
	}
}
