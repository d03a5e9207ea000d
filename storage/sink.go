package storage

import (
	"bytes"
	"errors"
	"time"
)

// Sink is what the store remembers of a sink besides its dispatches. The zero
// value but for the name is that of one never used.
type Sink struct {
	Name    string
	Taken   []uint64  // events whose delivery may have begun and has not ended
	Stopped time.Time // since when nothing is sent to it; zero: it is not stopped
	Reason  string    // why it was stopped
}

const sinkVersion = 2 // as all records that are sealed

func (s *Sink) encode() []byte {
	w := newEncoder(sinkVersion, 32+8*len(s.Taken)+len(s.Reason))
	w.time(s.Stopped)
	w.text(s.Reason)
	w.u32(uint32(len(s.Taken)))
	for _, seq := range s.Taken {
		w.u64(seq)
	}
	return w.sealed()
}

func decodeSink(k, v []byte) (*Sink, error) {
	r := newDecoder(sinkVersion, v)
	s := &Sink{Name: string(k), Stopped: r.time(), Reason: r.text()}
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		s.Taken = append(s.Taken, r.u64())
	}
	err := r.done()
	if err == nil && len(k) == 0 {
		err = errors.New("it has no name")
	}
	if err != nil {
		return nil, &RecordError{bucketNames[bucketSink], bytes.Clone(k), err}
	}
	return s, nil
}

// Sink reads what is remembered of a sink.
func (tx *Tx) Sink(name string) (*Sink, error) {
	v := tx.get(bucketSink, []byte(name))
	if v == nil {
		return &Sink{Name: name}, nil
	}
	return decodeSink([]byte(name), v)
}

// Sinks are all sinks of which something is remembered, by name.
func (tx *Tx) Sinks() ([]*Sink, error) {
	var sinks []*Sink
	c := tx.bucket(bucketSink).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		s, err := decodeSink(k, v)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, s)
	}
	return sinks, nil
}

func (tx *Tx) saveSink(s *Sink) error {
	return tx.put(bucketSink, []byte(s.Name), s.encode())
}

// StopSink notes that a sink wants nothing more until a person says otherwise.
func (tx *Tx) StopSink(name, reason string) error {
	s, err := tx.Sink(name)
	if err != nil {
		return err
	}
	s.Stopped, s.Reason = tx.Now, reason
	return tx.saveSink(s)
}

// StartSink takes back StopSink.
func (tx *Tx) StartSink(name string) error {
	s, err := tx.Sink(name)
	if err != nil || s.Stopped.IsZero() {
		return err
	}
	s.Stopped, s.Reason = noTime, ""
	tx.queued = append(tx.queued, queued{sink: name})
	return tx.saveSink(s)
}
