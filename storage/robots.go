package storage

import (
	"bytes"
	"time"
)

// Robots is a robots.txt as it was last read from an origin.
type Robots struct {
	FetchedAt time.Time
	Status    int
	Body      []byte
}

const robotsVersion = 2 // 2 is sealed

// Robots reads what is kept for an origin (scheme://host:port); false: nothing.
func (tx *Tx) Robots(origin string) (Robots, bool, error) {
	v := tx.get(bucketRobots, []byte(origin))
	if v == nil {
		return Robots{}, false, nil
	}
	d := newDecoder(robotsVersion, v)
	r := Robots{FetchedAt: d.time(), Status: int(d.u32()), Body: bytes.Clone(d.raw())}
	if err := d.done(); err != nil {
		return Robots{}, false, &RecordError{bucketNames[bucketRobots], []byte(origin), err}
	}
	return r, true, nil
}

// PutRobots keeps a robots.txt, read now.
func (tx *Tx) PutRobots(origin string, status int, body []byte) error {
	e := newEncoder(robotsVersion, 16+len(body))
	e.time(tx.Now)
	e.u32(uint32(status))
	e.bytes(body)
	return tx.put(bucketRobots, []byte(origin), e.sealed())
}
