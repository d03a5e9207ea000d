package config

import (
	"math/big"
	"regexp"
)

// Price is what a proxy's traffic costs, to the last digit. The zero value is no
// price, which is not a price of zero.
type Price struct {
	Currency string   // such as "USD"; "": there is no price
	perByte  *big.Rat // never changed
}

// Cost is the price of a number of bytes, 0 without a price. The caller owns it.
func (p Price) Cost(bytes int64) *big.Rat {
	cost := new(big.Rat)
	if p.perByte == nil {
		return cost
	}
	return cost.Mul(p.perByte, cost.SetInt64(bytes))
}

var (
	budgetText = regexp.MustCompile(`^(.+)/day$`)
	priceText  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ([A-Z]{3})/(GB|GiB)$`)
)

// priceUnits are the sizes that a price may be for, in bytes.
var priceUnits = map[string]int64{"GB": 1e9, "GiB": 1 << 30}

// budget reads a number of bytes a day; "" is none.
func (t *table) budget(to *int64) {
	var text string
	if !t.text("budget", &text) || text == "" {
		return
	}
	if m := budgetText.FindStringSubmatch(text); m != nil {
		if size, err := parseSize(m[1]); err == nil && size > 0 {
			*to = size
			return
		}
	}
	t.l.wrong(t.get("budget"), `must be a size a day, such as "2GB/day"`)
}

// price reads what a number of bytes costs; "" is no price.
func (t *table) price(to *Price) {
	var text string
	if !t.text("price", &text) || text == "" {
		return
	}
	m := priceText.FindStringSubmatch(text)
	if m == nil {
		t.l.wrong(t.get("price"), `must be a price such as "1.00 USD/GB"`)
		return
	}
	amount, _ := new(big.Rat).SetString(m[1]) // the pattern lets nothing else through
	*to = Price{Currency: m[2], perByte: amount.Quo(amount, new(big.Rat).SetInt64(priceUnits[m[3]]))}
}
