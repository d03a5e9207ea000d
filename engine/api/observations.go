package api

import (
	"bufio"
	"net/http"
	"net/url"
	"strconv"
)

// headerCursor is where the next request for changes goes on.
const headerCursor = "Semel-Cursor"

// defaultChanges is how many changes a request gets that does not say.
const defaultChanges = 1000

// formatTypes are the media types of the formats.
var formatTypes = map[Format]string{"": "application/jsonl", FormatJSONL: "application/jsonl", FormatCSV: "text/csv; charset=utf-8"}

// observations answers an export, or with a cursor a page of changes.
func (h *Handler) observations(w *response, r *http.Request) error {
	query := r.URL.Query()
	if query.Has("cursor") {
		return h.changes(w, r, query)
	}
	request, err := parseExport(r.PathValue("source"), query)
	if err != nil {
		return err
	}
	return stream(w, formatTypes[request.Format], func(out *bufio.Writer) (any, error) {
		return h.local.Export(r.Context(), request, out)
	})
}

// changes answers a whole page at once, so that its cursor can stand before it.
func (h *Handler) changes(w *response, r *http.Request, query url.Values) error {
	request, err := parseChanges(r.PathValue("source"), query)
	if err != nil {
		return err
	}
	page, err := h.local.Changes(r.Context(), request)
	if err != nil {
		return err
	}
	w.Header().Set(headerCursor, page.Cursor)
	return lines(w, func(out *bufio.Writer) (any, error) {
		_, err := out.Write(page.Lines)
		return page, err
	})
}

// parseExport reads an ExportRequest from a query, and values write it.
func parseExport(source string, query url.Values) (ExportRequest, error) {
	r := ExportRequest{Source: source}
	err := eachParameter(query, func(name, value string) (err error) {
		switch name {
		case "data_only":
			r.DataOnly, err = parseFlag(name, value)
		case "latest":
			r.Latest, err = parseFlag(name, value)
		case "window":
			r.Window = value
		case "format":
			r.Format = Format(value)
		case "limit":
			err = badRequest("limit is for pages of changes: ask with cursor= for the first one")
		default:
			err = unknownParameter(name)
		}
		return err
	})
	return r, err
}

func (r ExportRequest) values() url.Values {
	v := url.Values{"data_only": {strconv.FormatBool(r.DataOnly)}}
	if r.Latest {
		v.Set("latest", "true")
	}
	if r.Window != "" {
		v.Set("window", r.Window)
	}
	if r.Format != "" {
		v.Set("format", string(r.Format))
	}
	return v
}

// parseChanges reads a ChangesRequest from a query, and values write it.
func parseChanges(source string, query url.Values) (ChangesRequest, error) {
	r := ChangesRequest{Source: source, Limit: defaultChanges}
	err := eachParameter(query, func(name, value string) (err error) {
		switch name {
		case "cursor":
			r.Cursor = value
		case "data_only":
			r.DataOnly, err = parseFlag(name, value)
		case "limit":
			if r.Limit, err = strconv.Atoi(value); err != nil {
				err = badRequest("limit is a number (got %q)", value)
			}
		case "window", "latest", "format":
			err = badRequest("%s does not go with cursor: a page of changes is JSON Lines of whatever has changed", name)
		default:
			err = unknownParameter(name)
		}
		return err
	})
	return r, err
}

func (r ChangesRequest) values() url.Values {
	return url.Values{
		"cursor": {r.Cursor}, "limit": {strconv.Itoa(r.Limit)}, "data_only": {strconv.FormatBool(r.DataOnly)},
	}
}

func parseFlag(name, value string) (bool, error) {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, badRequest("%s is true or false (got %q)", name, value)
	}
	return on, nil
}

// fileCursor answers null where there is none.
func (h *Handler) fileCursor(w *response, r *http.Request) error {
	f, err := h.local.FileCursor(r.Context(), r.PathValue("source"), r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, f)
}

// moveFileCursor answers with where the cursor is now.
func (h *Handler) moveFileCursor(w *response, r *http.Request) error {
	var m FileMove
	if err := readBody(w, r, &m); err != nil {
		return err
	}
	if err := h.local.MoveFileCursor(r.Context(), r.PathValue("source"), m); err != nil {
		return err
	}
	return answer(w, http.StatusOK, m.To)
}
