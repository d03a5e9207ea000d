package storage

func writeDispatch(seq uint64, sink string, change func(*Dispatch)) func(*Tx) error {
	return func(tx *Tx) error {
		d, err := tx.Dispatch(seq, sink)
		if err != nil {
			return err
		}
		change(d)
		return tx.put(bucketDispatch, dispatchKey(seq, sink), d.encode())
	}
}

func changeSink(name string, change func(*Sink)) func(*Tx) error {
	return func(tx *Tx) error {
		s, err := tx.Sink(name)
		if err != nil {
			return err
		}
		change(s)
		return tx.saveSink(s)
	}
}

// outboxDamage is to dispatches, their indexes, sinks, and the events of jobs.
var outboxDamage = []damage{
	{"garbage", put(bucketDispatch, dispatchKey(eventA, "a"), garbage), []Breach{
		{"dispatch", dispatchKey(eventA, "a"), "it cannot be read: record has an unknown version"},
		{"counter", counterKey("", metricOutbox+"a"), "it says 14, a recount gives 13"},
	}},
	{"missing", remove(bucketDispatch, dispatchKey(eventA, "a")), []Breach{
		{"outbox", outboxKey("a", eventA), "no dispatch of event 4 is pending there"},
		{"counter", counterKey("", metricOutbox+"a"), "it says 14, a recount gives 13"},
	}},
	{"no sink", put(bucketDispatch, idKey(eventA), (&Dispatch{State: DispatchDelivered, Outcome: OutcomeDelivered, Last: damagedEnd}).encode()), []Breach{
		{"dispatch", idKey(eventA), "it cannot be read: record is cut short"},
	}},
	{"unknown state", writeDispatch(eventJobRescued, "b", func(d *Dispatch) { d.State = "odd" }), []Breach{
		{"dispatch", dispatchKey(eventJobRescued, "b"), "its state is unknown: odd"},
	}},
	{"unknown outcome", writeDispatch(eventJobA, "b", func(d *Dispatch) { d.Outcome = "odd" }), []Breach{
		{"dispatch", dispatchKey(eventJobA, "b"), "the outcome of its last delivery is unknown: odd"},
	}},
	{"an outcome at no time", writeDispatch(eventJobA, "b", func(d *Dispatch) { d.Last = noTime }), []Breach{
		{"dispatch", dispatchKey(eventJobA, "b"), "its last delivery has an outcome and no time, or a time and no outcome"},
	}},
	{"delivered by nothing", writeDispatch(eventJobRescued, "b", func(d *Dispatch) { d.Outcome = OutcomeAgain }), []Breach{
		{"dispatch", dispatchKey(eventJobRescued, "b"), "it is delivered, and its last delivery is not"},
	}},
	{"pending though it arrived", writeDispatch(eventA, "a", func(d *Dispatch) { d.Outcome, d.Last = OutcomeDelivered, damagedEnd }), []Breach{
		{"dispatch", dispatchKey(eventA, "a"), "it is pending, though its last delivery has arrived and nobody sent it back"},
	}},
	{"dead by nothing", writeDispatch(eventJobA, "b", func(d *Dispatch) { d.Outcome = OutcomeDeduplicated }), []Breach{
		{"dispatch", dispatchKey(eventJobA, "b"), "it is dead, and no delivery of it has failed last"},
	}},
	{"a first without a last", writeDispatch(eventA, "a", func(d *Dispatch) { d.First = damagedEnd }), []Breach{
		{"dispatch", dispatchKey(eventA, "a"), "it has a first delivery, and no last one"},
	}},
	{"due when it is over", writeDispatch(eventJobA, "b", func(d *Dispatch) { d.Next = damagedEnd }), []Breach{
		{"dispatch", dispatchKey(eventJobA, "b"), "it is not pending, and a delivery is due"},
	}},
	{"tries without a first", writeDispatch(eventJobA, "b", func(d *Dispatch) { d.First = noTime }), []Breach{
		{"dispatch", dispatchKey(eventJobA, "b"), "it has tries, and no first one"},
	}},
	{"ambiguous and not counted", writeDispatch(eventJobLater, "b", func(d *Dispatch) { d.Ambiguous = 0 }), []Breach{
		{"dispatch", dispatchKey(eventJobLater, "b"), "its last delivery was ambiguous, and it counts none"},
	}},
	{"pending: not listed", remove(bucketOutbox, outboxKey("a", eventA)), []Breach{
		{"dispatch", dispatchKey(eventA, "a"), "it is pending and missing in bucket outbox"},
	}},
	{"dead: not listed", remove(bucketDead, outboxKey("b", eventJobA)), []Breach{
		{"dispatch", dispatchKey(eventJobA, "b"), "it is dead and missing in bucket dead"},
	}},
	{"pending: no event", put(bucketOutbox, outboxKey("a", 77), nil), []Breach{
		{"outbox", outboxKey("a", 77), "no dispatch of event 77 is pending there"},
	}},
	{"pending: another state", put(bucketOutbox, outboxKey("b", eventJobA), nil), []Breach{
		{"outbox", outboxKey("b", eventJobA), "no dispatch of event 5 is pending there"},
	}},
	{"pending: no sink", put(bucketOutbox, outboxKey("", eventA), nil), []Breach{
		{"outbox", []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x04"), "its key is not a sink and the number of an event"},
	}},
	{"dead: no number", put(bucketDead, []byte("a"), nil), []Breach{
		{"dead", []byte("a"), "its key is not a sink and the number of an event"},
	}},
	{"pending: a value", put(bucketOutbox, outboxKey("a", eventA), []byte("x")), []Breach{
		{"outbox", outboxKey("a", eventA), "it has a value"},
	}},
	{"sink: garbage", put(bucketSink, []byte("b"), garbage), []Breach{
		{"sink", []byte("b"), "it cannot be read: record has an unknown version"},
	}},
	{"sink: stopped for no reason", changeSink("b", func(s *Sink) { s.Reason = "" }), []Breach{
		{"sink", []byte("b"), "it is stopped for no reason, or has a reason and is not stopped"},
	}},
	{"sink: not meant for it", changeSink("b", func(s *Sink) { s.Taken = []uint64{eventA} }), []Breach{
		{"sink", []byte("b"), "event 4 is under way to it, and was not meant for it"},
	}},
	{"sink: what is delivered", changeSink("b", func(s *Sink) { s.Taken = append(s.Taken, eventJobRescued) }), []Breach{
		{"sink", []byte("b"), "event 3 is under way to it, and is delivered"},
	}},
	{"sink: what is dead", changeSink("b", func(s *Sink) { s.Taken = append(s.Taken, eventJobA) }), []Breach{
		{"sink", []byte("b"), "event 5 is under way to it, and is dead"},
	}},
	{"sink: twice", changeSink("b", func(s *Sink) { s.Taken = []uint64{eventJobLater, eventJobLater} }), []Breach{
		{"sink", []byte("b"), "event 7 is under way twice"},
	}},
	{"of a job: not listed", remove(bucketJobEvent, jobEventKey(jobComplete, eventA)), []Breach{
		{"event", idKey(eventA), "it is of job 3, and missing in bucket jobevent"},
	}},
	{"of a job: another", put(bucketJobEvent, jobEventKey(jobRunning, eventA), nil), []Breach{
		{"jobevent", jobEventKey(jobRunning, eventA), "no event 4 is of this job"},
	}},
	{"of a job: a value", put(bucketJobEvent, jobEventKey(jobComplete, eventA), []byte("x")), []Breach{
		{"jobevent", jobEventKey(jobComplete, eventA), "it has a value"},
	}},
	{"of a job: no numbers", put(bucketJobEvent, []byte("x"), nil), []Breach{
		{"jobevent", []byte("x"), "its key is not the numbers of a job and an event"},
	}},
	{"pending counter", put(bucketCounter, counterKey("", metricOutbox+"a"), i64(9)), []Breach{
		{"counter", counterKey("", metricOutbox+"a"), "it says 9, a recount gives 14"},
	}},
}
