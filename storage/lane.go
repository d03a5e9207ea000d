package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// LaneID numbers a lane.
type LaneID uint32

// Lane holds the ready jobs of one source at one host and in one country. A
// source has one choice of proxies, so a lane's jobs are alike in all that the
// choice of the next one looks at, and a changed choice in the config needs no
// rewriting of the queue.
type Lane struct {
	Host    string
	Source  string
	Country string // of the jobs; "" also for those that schema 2 queued
}

func (l Lane) name() []byte {
	b := make([]byte, 0, len(l.Host)+len(l.Source)+len(l.Country)+2)
	b = append(b, l.Host...)
	b = append(b, 0)
	b = append(b, l.Source...)
	if l.Country != "" {
		b = append(b, 0)
		b = append(b, l.Country...)
	}
	return b
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// lane finds or makes a lane.
func (tx *Tx) lane(l Lane) (LaneID, error) {
	name := l.name()
	if v := tx.get(bucketLane, name); len(v) == 4 {
		return LaneID(binary.BigEndian.Uint32(v)), nil
	}
	id := LaneID(tx.nextID(laneSequence))
	number := appendU32(nil, uint32(id))
	if err := tx.insert(bucketLane, name, number); err != nil {
		return 0, err
	}
	return id, tx.insert(bucketLaneName, number, name)
}

// Lane tells what a lane holds. Error: ErrNotFound.
func (tx *Tx) Lane(id LaneID) (Lane, error) {
	key := appendU32(nil, uint32(id))
	host, rest, ok := strings.Cut(string(tx.get(bucketLaneName, key)), "\x00")
	if !ok {
		return Lane{}, &RecordError{bucketNames[bucketLaneName], key, fmt.Errorf("lane %d: %w", id, ErrNotFound)}
	}
	source, country, _ := strings.Cut(rest, "\x00")
	return Lane{host, source, country}, nil
}

// ReadyLanes are all lanes with a ready job: one seek each.
func (tx *Tx) ReadyLanes() []LaneID {
	var lanes []LaneID
	c := tx.bucket(bucketReady).Cursor()
	for k, _ := c.First(); len(k) > 4; {
		lane := binary.BigEndian.Uint32(k)
		lanes = append(lanes, LaneID(lane))
		k, _ = c.Seek(appendU32(nil, lane+1))
	}
	return lanes
}
