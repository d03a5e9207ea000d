package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// collectBytes bounds the frames that one transaction moves.
const collectBytes = 4 << 20

// CollectPages gives back the room of pages that no attempt names any more: of
// each segment that is mostly such room, what is left moves to the segment that
// is written now, and the file goes. Errors: ErrFull, ErrStopped, *RecordError
// where a segment is damaged (ErrPageLost where its file is): it stays, and the others are collected.
func (s *Store) CollectPages(ctx context.Context) error {
	var damage error
	for after := uint32(0); ; {
		id, r, err := s.sparseSegment(ctx, after)
		if err != nil || id == 0 {
			return errors.Join(damage, err)
		}
		if err := s.emptySegment(ctx, id, r); err != nil {
			err = fmt.Errorf("collecting segment %s: %w", r.name, err)
			if _, damaged := errors.AsType[*RecordError](err); !damaged {
				return errors.Join(damage, err)
			}
			damage = errors.Join(damage, err)
		}
		after = id
	}
}

const (
	// smallSegment is what each of many short runs leaves behind, and fewSmall
	// how many of those there may be before they are put together.
	smallSegment = 1 << 20
	fewSmall     = 32
)

// sparseSegment is the first after an id whose frames are half unused or more,
// or that is one of too many small ones, but for the one that is written; id 0:
// there is none.
func (s *Store) sparseSegment(ctx context.Context, after uint32) (id uint32, r segmentRecord, err error) {
	err = s.Update(ctx, func(tx *Tx) error { // an Update, for which segment is written only the writer knows
		var small []uint32
		c := tx.bucket(bucketSegment).Cursor()
		for k, v := c.Seek(segmentKey(after + 1)); k != nil; k, v = c.Next() {
			at := binary.BigEndian.Uint32(k)
			if r, err = decodeSegment(k, v); err != nil {
				return err
			}
			switch {
			case at == tx.segments.id:
			case 2*r.live <= r.size:
				id = at
				return nil
			case r.size < smallSegment:
				small = append(small, at)
			}
		}
		if len(small) <= fewSmall {
			return nil
		}
		id = small[0]
		r, err = tx.segment(id)
		return err
	})
	return id, r, err
}

// emptySegment moves the pages of a segment and removes it.
func (s *Store) emptySegment(ctx context.Context, id uint32, r segmentRecord) error {
	if r.live > 0 {
		if err := s.movePages(ctx, id, r); err != nil {
			return err
		}
	}
	err := s.Update(ctx, func(tx *Tx) error {
		left, err := tx.segment(id)
		if err != nil {
			return err
		}
		if left.live > 0 {
			return &RecordError{bucketNames[bucketSegment], segmentKey(id), lostPages(fmt.Errorf("%d bytes in use cannot be found in it; run semel verify", left.live))}
		}
		return tx.remove(bucketSegment, segmentKey(id))
	})
	if err == nil {
		s.segments.discard(r.name)
	}
	return err
}

func lostPages(err error) error { return fmt.Errorf("%w: %w", ErrPageLost, err) }

// foundFrame is a frame as it stands in a segment.
type foundFrame struct {
	offset uint64
	data   []byte
}

// movePages appends the frames of a segment that pages stand in to the one that
// is written now.
func (s *Store) movePages(ctx context.Context, id uint32, r segmentRecord) error {
	f, err := os.Open(filepath.Join(s.segments.dir, r.name))
	if err != nil {
		return &RecordError{bucketNames[bucketSegment], segmentKey(id), lostPages(err)}
	}
	defer f.Close()
	for offset := uint64(len(segmentMagic)); offset < r.size; {
		frames, next, err := readFrames(f, offset, r.size)
		if err != nil {
			return &RecordError{bucketNames[bucketSegment], segmentKey(id), lostPages(fmt.Errorf("its frame at %d: %w", next, err))}
		}
		err = s.Update(ctx, func(tx *Tx) error {
			for _, frame := range frames {
				if err := tx.movePage(id, frame); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		offset = next
	}
	return nil
}

// movePage gives a page its new place, if it stands in this frame.
func (tx *Tx) movePage(from uint32, frame foundFrame) error {
	h := PageHash(frame.data[8:frameHeader])
	old, err := tx.pageAt(h)
	if errors.Is(err, ErrNotFound) || err == nil && (!old.is(pagePlace{segment: from, offset: frame.offset})) {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := tx.replaceFrame(old, frame.data)
	if err != nil {
		return err
	}
	return tx.put(bucketPage, h[:], p.encode())
}

// readFrames reads whole frames from an offset on, and gives the offset after
// the last one. On an error it is that of the frame that cannot be read.
func readFrames(f io.ReaderAt, offset, end uint64) (frames []foundFrame, next uint64, err error) {
	for size := uint64(0); offset < end && size < collectBytes; {
		header := make([]byte, frameHeader)
		if _, err := f.ReadAt(header, int64(offset)); err != nil {
			return nil, offset, err
		}
		n := uint64(binary.BigEndian.Uint32(header))
		if n < frameHeader || offset+n > end {
			return nil, offset, errors.New("its size cannot be right")
		}
		data := append(bytes.Clone(header), make([]byte, n-frameHeader)...)
		if _, err := f.ReadAt(data[frameHeader:], int64(offset+frameHeader)); err != nil {
			return nil, offset, err
		}
		frames = append(frames, foundFrame{offset, data})
		offset += n
		size += n
	}
	return frames, offset, nil
}
