package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// LaneID numbers the ready jobs of one source at one host. A source has one
// choice of proxies, so a lane's jobs are alike in all that pacing looks at,
// and a changed choice in the config needs no rewriting of the queue.
type LaneID uint32

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// lane finds or makes the lane of a source at a host.
func (tx *Tx) lane(host, source string) (LaneID, error) {
	name := laneName(host, source)
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

// Lane tells a lane's host and source.
func (tx *Tx) Lane(id LaneID) (host, source string, err error) {
	key := appendU32(nil, uint32(id))
	v := tx.get(bucketLaneName, key)
	h, s, ok := bytes.Cut(v, []byte{0})
	if !ok {
		return "", "", &RecordError{bucketNames[bucketLaneName], key, fmt.Errorf("lane %d: %w", id, ErrNotFound)}
	}
	return string(h), string(s), nil
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
