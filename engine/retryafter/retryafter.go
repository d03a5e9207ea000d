// Package retryafter reads the Retry-After of an HTTP answer (RFC 9110 §10.2.3).
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Max is the longest wait that anybody is believed to mean.
const Max = 24 * time.Hour

// Parse reads both forms: at least a second and at most Max, or 0 where there is
// none or it is nonsense. A date is taken against the answer's own Date, so that
// a wrong clock on either side does not matter.
func Parse(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		wait = time.Duration(min(seconds, int64(Max/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		wait = at.Sub(now)
	}
	if wait <= 0 {
		return 0
	}
	return min(max(wait, time.Second), Max)
}
