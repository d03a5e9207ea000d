package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// imageHost is where the pages' images lie; nobody asks for them.
const imageHost = "https://images.shop.example/"

// unratedEvery is how often a product has no rating: its page says nothing of
// one, so the record has null and names the field as missing.
const unratedEvery = 7

var (
	makes     = [...]string{"Oak & Brass", "Linen", "Enamel", "Café", "Walnut", "Stone", "Copper", "Field", "Harbour", "Paper", "Glass"}
	things    = [...]string{"Desk Lamp", "Teapot", "Notebook", "Stool", "Bread Knife", "Wall Clock", "Blanket", "Watering Can", "Bookend", "Tray", "Kettle", "Lantern", "Basket"}
	stocks    = [...]string{"InStock", "InStock", "InStock", "OutOfStock", "PreOrder"}
	sentences = [...]string{
		"Made in small numbers, and mended for as long as parts can be had.",
		"It came well packed and looks better than in the pictures.",
		"A little smaller than expected, but it does what it should.",
		"The finish wears in rather than out, which is what we wanted.",
		"Delivery took nine days; the shop answered our question within one.",
		"Please measure twice: this one cannot be returned once it was cut.",
		"Bought a second one for the office, and a third as a present.",
	}
)

// product is what one page tells; n is its number, from 1.
type product struct{ n int }

// draw is a number below limit that stands for one trait of the product.
func (p product) draw(trait, limit int) int {
	mixed := (uint64(p.n)*0x9E3779B97F4A7C15 + uint64(trait)) * 0xD6E8FEB86659FD93
	return int(mixed >> 33 % uint64(limit))
}

func (p product) title() string {
	return makes[p.draw(1, len(makes))] + " " + things[p.draw(2, len(things))] + " No. " + strconv.Itoa(p.n)
}

// price is in cents.
func (p product) price() int { return 495 + p.draw(3, 250_000) }

// stock is schema.org's word.
func (p product) stock() string { return stocks[p.draw(4, len(stocks))] }

// rating is "" where the product has none.
func (p product) rating() string {
	if p.n%unratedEvery == 0 {
		return ""
	}
	tenths := 20 + p.draw(5, 31)
	return fmt.Sprintf("%d.%d", tenths/10, tenths%10)
}

func (p product) updated() time.Time {
	return time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC).Add(time.Duration(p.draw(6, 90*24*60)) * time.Minute)
}

func (p product) images() []string {
	images := make([]string, 2+p.draw(7, 3))
	for i := range images {
		images[i] = fmt.Sprintf("%s%s/%d.jpg", imageHost, ID(p.n), i+1)
	}
	return images
}

// ID is the n-th product's id, from 1: it sorts as n does up to 999,999.
func ID(n int) string { return fmt.Sprintf("%06d", n) }

// number is ID's inverse.
func number(id string) (int, bool) {
	n, err := strconv.Atoi(id)
	return n, err == nil && n >= 1 && ID(n) == id
}

// Record is what the rules of [ParserTOML] make of Page(n), byte for byte: one
// line of `semel export --data-only`, without its end.
func Record(n int) []byte {
	p := product{n}
	type money struct {
		Amount   string `json:"amount"`
		Currency string `json:"currency"`
	}
	record := struct {
		ID           string   `json:"id"`
		Title        string   `json:"title"`
		Price        money    `json:"price"`
		Availability string   `json:"availability"`
		Rating       *string  `json:"rating"`
		Updated      string   `json:"updated"`
		Images       []string `json:"images"`
	}{
		ID: ID(n), Title: p.title(), Price: money{cents(p.price()), "USD"}, Updated: p.updated().Format(time.RFC3339), Images: p.images(),
	}
	switch p.stock() {
	case "InStock":
		record.Availability = "in_stock"
	case "OutOfStock":
		record.Availability = "out_of_stock"
	default:
		record.Availability = "preorder"
	}
	if rating := p.rating(); rating != "" {
		record.Rating = &rating
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(record); err != nil {
		panic(err) // texts always encode
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func cents(n int) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }

// shown is an amount as the page writes it, with a comma between thousands.
func shown(n int) string {
	if n >= 100_000 {
		return fmt.Sprintf("$%d,%03d.%02d", n/100_000, n/100%1000, n%100)
	}
	return "$" + cents(n)
}
