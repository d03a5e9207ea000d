package storage

import "encoding/binary"

// imports wants every import to stand under its key, with the chunks that it
// says it has.
func (c *checker) imports() {
	chunks := 0
	c.each(bucketImport, func(k, v []byte) {
		im, err := decodeImport(k, v)
		if err != nil {
			c.unreadable(bucketImport, k, err)
			return
		}
		c.written(bucketImport, k, v, im.encode())
		c.rules(bucketImport, k, importRules(im, string(k))...)
		if im.Ended.IsZero() {
			c.openImport(k, im)
		}
		chunks += c.chunksOf(im)
	})
	c.importChunks(chunks)
}

// openImport wants the run of an import that has not ended to wait for it.
func (c *checker) openImport(k []byte, im *Import) {
	switch r, err := c.tx.RunByKey(im.Key.Run()); {
	case err != nil:
		c.breach(bucketImport, k, "it has not ended, and its run: %v", err)
	case !r.Listing:
		c.breach(bucketImport, k, "it has not ended, and run %d does not wait for it", r.ID)
	}
}

func importRules(im *Import, key string) []rule {
	return []rule{
		{im.Key.String() != key, "it stands under another key than its own"},
		{im.Key.Source == "" || im.Key.Name == "", "it has no source or no name"},
		{im.Key.Window.Nanosecond() != 0, "its window does not begin with a second"},
		{im.Began.IsZero() || !im.Ended.IsZero() && im.Ended.Before(im.Began), "it ended before it began, or never began"},
		{!im.Ended.IsZero() && im.Chunks > 0, "it has ended, and has chunks"},
	}
}

// chunksOf looks at the chunks of an import, and gives how many there are.
func (c *checker) chunksOf(im *Import) (found int) {
	for n := range im.Chunks {
		k := importChunkKey(im.Key, n)
		v := c.tx.get(bucketImportChunk, k)
		if v == nil {
			c.breach(bucketImportChunk, k, "it is missing: its import has %d", im.Chunks)
			return found
		}
		found++
		chunk, err := decodeImportChunk(k, v)
		if err != nil {
			c.unreadable(bucketImportChunk, k, err)
			continue
		}
		c.written(bucketImportChunk, k, v, chunk.encode())
		c.rules(bucketImportChunk, k, rule{chunk.Rows == 0, "it has no rows"})
	}
	return found
}

// importChunks looks for chunks that no import has, unless there are just as
// many as were found by theirs.
func (c *checker) importChunks(found int) {
	c.each(bucketImportChunk, func(_, _ []byte) { found-- })
	if found == 0 {
		return
	}
	c.each(bucketImportChunk, func(k, _ []byte) {
		if !c.inImport(k) {
			c.breach(bucketImportChunk, k, "no import has it")
		}
	})
}

// inImport reports whether a key is that of a chunk that its import has.
func (c *checker) inImport(k []byte) bool {
	end := len(k) - 5
	if end < 0 || k[end] != 0 {
		return false
	}
	im, err := decodeImport(k[:end], c.tx.get(bucketImport, k[:end]))
	return err == nil && binary.BigEndian.Uint32(k[end+1:]) < im.Chunks
}
