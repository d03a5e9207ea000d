package storage

import (
	"strings"
	"time"
)

// Traffic is a number of bytes on the wire, TLS and CONNECT included.
type Traffic struct{ Up, Down int64 }

// Total is both ways together.
func (t Traffic) Total() int64 { return t.Up + t.Down }

// Add is what both moved.
func (t Traffic) Add(o Traffic) Traffic { return Traffic{t.Up + o.Up, t.Down + o.Down} }

// traffic counts what an attempt of a lane's job moved, by day, host and proxy.
// What went directly is counted under no proxy.
func (a *Attempt) traffic(l Lane, count func(source, metric string, n int64)) {
	host, source, on := l.Host, l.Source, dayMetric(a.End, "")
	count(source, on+MetricBytesUp, a.BytesUp)
	count(source, on+MetricBytesDown, a.BytesDown)
	count("", on+metricHostUp+host, a.BytesUp)
	count("", on+metricHostDown+host, a.BytesDown)
	if a.Outcome == OutcomeComplete {
		count(source, on+MetricComplete, 1)
	} else {
		count(source, MetricBytesWasted, a.BytesUp+a.BytesDown)
	}
	if a.Proxy == "" {
		return
	}
	count(source, MetricProxyUp+a.Proxy, a.BytesUp)
	count(source, MetricProxyDown+a.Proxy, a.BytesDown)
	count("", on+MetricProxyUp+a.Proxy, a.BytesUp)
	count("", on+MetricProxyDown+a.Proxy, a.BytesDown)
}

// CountTraffic counts what was moved for a source and for none of its jobs, as
// if attempts of theirs had moved it that are pruned by now. proxy "": directly.
func (tx *Tx) CountTraffic(source, host, proxy string, moved Traffic) {
	count := func(source, metric string, n int64) {
		if metric != MetricBytesWasted { // it was for jobs to come
			tx.count(source, metric, n)
			tx.count(source, metricPruned+metric, n)
		}
	}
	a := Attempt{Proxy: proxy, End: tx.Now, BytesUp: moved.Up, BytesDown: moved.Down}
	a.traffic(Lane{Host: host, Source: source}, count)
	count(source, MetricBytesUp, moved.Up)
	count(source, MetricBytesDown, moved.Down)
}

// pruneTraffic notes what an attempt had counted that is about to be deleted.
func (tx *Tx) pruneTraffic(a *Attempt) error {
	if a.Lane == 0 {
		return nil
	}
	lane, err := tx.Lane(a.Lane)
	if err != nil {
		return err
	}
	from := tx.daysFrom()
	a.traffic(lane, func(source, metric string, n int64) {
		if !dropped(metric, from) {
			tx.count(source, metricPruned+metric, n)
		}
	})
	return nil
}

// ProxyTraffic is what went through a proxy on a day (UTC), as of the last
// commit. Days are kept for five weeks.
func (tx *Tx) ProxyTraffic(name string, day time.Time) Traffic {
	read := func(metric string) int64 {
		return tailInt(tx.get(bucketCounter, counterKey("", dayMetric(day, metric)+name)))
	}
	return Traffic{read(MetricProxyUp), read(MetricProxyDown)}
}

// DayTraffic is what moved on a day (UTC), over all sources: see
// Counters.Proxies and Counters.Hosts.
func (tx *Tx) DayTraffic(day time.Time) Counters {
	return tx.countersUnder("", dayMetric(day, ""))
}

// Proxies is what went through each proxy, by its name.
func (c Counters) Proxies() map[string]Traffic { return c.traffic(MetricProxyUp, MetricProxyDown) }

// Hosts is what went to and from each host of a day, by its name.
func (c Counters) Hosts() map[string]Traffic { return c.traffic(metricHostUp, metricHostDown) }

// traffic joins the counters of two directions that a name follows.
func (c Counters) traffic(up, down string) map[string]Traffic {
	by := map[string]Traffic{}
	for metric, n := range c {
		if name, ok := strings.CutPrefix(metric, up); ok {
			by[name] = by[name].Add(Traffic{Up: n})
		} else if name, ok := strings.CutPrefix(metric, down); ok {
			by[name] = by[name].Add(Traffic{Down: n})
		}
	}
	return by
}

// daysKey is the place of daysFrom in bucket meta.
var daysKey = []byte("days")

// daysFrom is the first day whose daily counts are kept; "": all of them are.
func (tx *Tx) daysFrom() string { return string(tx.get(bucketMeta, daysKey)) }

// dropDays notes that daily counts of days before one say nothing any more.
func (tx *Tx) dropDays(from string) error {
	if from <= tx.daysFrom() {
		return nil
	}
	return tx.put(bucketMeta, daysKey, []byte(from))
}

// dropped reports whether a metric counts a day that lies before those kept.
func dropped(metric, from string) bool {
	day, daily := strings.CutPrefix(metric, metricDay)
	return daily && day < from
}

func isDay(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}
