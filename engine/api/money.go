package api

import (
	"math/big"
	"strings"

	"semel/engine/config"
	"semel/storage"
)

// Money is an amount for people: exact up to its last digit, which is rounded.
type Money struct {
	Amount   string `json:"amount"` // such as "12.40" or "0.00213": with two decimals, and below one with those that show three digits
	Currency string `json:"currency"`
}

// String is the amount with its currency.
func (m Money) String() string { return m.Amount + " " + m.Currency }

const (
	minDecimals = 2  // of an amount
	maxDecimals = 15 // one so small is nothing
)

// amountText rounds an amount, half away from zero.
func amountText(amount *big.Rat) string {
	decimals, tenth := minDecimals, big.NewRat(1, 10)
	for least := big.NewRat(1, 1); amount.Cmp(least) < 0 && decimals < maxDecimals; least.Mul(least, tenth) {
		decimals++
	}
	text := amount.FloatString(decimals)
	shortest := len(text) - decimals + minDecimals
	return text[:shortest] + strings.TrimRight(text[shortest:], "0")
}

// cost is what traffic came to, at the prices of today; nil: that is not known.
type cost struct {
	amount   *big.Rat
	currency string
}

// costOf is the cost of what went through some proxies. It is known where each of
// them has a price, all in one currency; what went directly costs nothing.
func costOf(c *config.Config, used map[string]storage.Traffic) *cost {
	sum := cost{amount: new(big.Rat)}
	for name, n := range used {
		p := c.Proxy(name)
		if p == nil || p.Price.Currency == "" || sum.currency != "" && sum.currency != p.Price.Currency {
			return nil
		}
		sum.currency = p.Price.Currency
		sum.amount.Add(sum.amount, p.Price.Cost(n.Total()))
	}
	if sum.currency == "" {
		return nil
	}
	return &sum
}

// money is the cost for people, null where it is not known.
func (c *cost) money() *Money { return c.times(1, 1) }

// times is n/over of the cost.
func (c *cost) times(n, over int64) *Money {
	if c == nil || over == 0 {
		return nil
	}
	share := big.NewRat(n, over)
	return &Money{amountText(share.Mul(share, c.amount)), c.currency}
}
