package storage

import (
	"bytes"
	"errors"
	"time"
)

// GateHost keeps a host from being asked before a time, also across restarts.
// An earlier time than the one that stands changes nothing.
func (tx *Tx) GateHost(host string, until time.Time) error {
	key, value := []byte(host), appendTime(nil, until)
	if bytes.Compare(tx.get(bucketHost, key), value) >= 0 {
		return nil
	}
	return tx.put(bucketHost, key, value)
}

// HostGates are the hosts that may not be asked yet, with the time from which
// they may. Gates that are over are forgotten, so it belongs in an Update.
func (tx *Tx) HostGates() (map[string]time.Time, error) {
	gates := map[string]time.Time{}
	var over [][]byte
	c := tx.bucket(bucketHost).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		d := decoder{b: v}
		until := d.time()
		if d.done() != nil {
			return nil, &RecordError{bucketNames[bucketHost], bytes.Clone(k), errors.New("not a time")}
		}
		if until.After(tx.Now) {
			gates[string(k)] = until
		} else {
			over = append(over, bytes.Clone(k))
		}
	}
	for _, k := range over {
		if err := tx.remove(bucketHost, k); err != nil {
			return nil, err
		}
	}
	return gates, nil
}
