package parser

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/itchyny/gojq"
)

// One run of a jq expression may take jqSteps and jqStepsPerByte for each byte
// of the page: some ten times what it takes to visit every value. It is bounded
// by steps and not by time, so that the same page always ends the same way; a
// million steps are some 0.3 s and at most 80 MB.
const (
	jqSteps        = 1_000_000
	jqStepsPerByte = 4
)

// errJQSteps is the cause where a run was stopped.
var errJQSteps = errors.New("too many steps")

// jqSelector finds the results of a jq expression.
type jqSelector struct{ code *gojq.Code }

func compileJQ(text string) (*jqSelector, error) {
	q, err := gojq.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("not a jq expression: %w", err)
	}
	if name := impureCall(reflect.ValueOf(q)); name != "" {
		return nil, fmt.Errorf("%s is not allowed: a record must not depend on when and where it is read", name)
	}
	code, err := gojq.Compile(q)
	if err != nil {
		return nil, fmt.Errorf("not a jq expression: %w", err)
	}
	return &jqSelector{code}, nil
}

// impureCall finds a call in a parsed query whose result is not made of the
// page alone.
func impureCall(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if f, ok := v.Interface().(*gojq.Func); ok && f != nil &&
			slices.Contains([]string{"now", "localtime", "strflocaltime", "env", "$ENV"}, f.Name) {
			return f.Name
		}
		if !v.IsNil() {
			return impureCall(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := impureCall(v.Field(i)); name != "" {
				return name
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if name := impureCall(v.Index(i)); name != "" {
				return name
			}
		}
	}
	return ""
}

func (j *jqSelector) find(s *scope, yield func(match) bool) error {
	in, err := s.json()
	if err != nil {
		return err
	}
	_, err = j.run(s.page, in, yield)
	return err
}

// run calls yield for the expression's results over in; it says false when
// yield does.
func (j *jqSelector) run(p *page, in any, yield func(match) bool) (bool, error) {
	steps := jqSteps + jqStepsPerByte*len(p.in.Body)
	ctx := &stepContext{context.Background(), steps}
	iter := j.code.RunWithContext(ctx, in)
	for {
		before := ctx.left
		v, ok := iter.Next()
		if err := p.spend(stepsPerJQ * (before - ctx.left)); err != nil {
			return false, err
		}
		if !ok {
			return true, nil
		}
		if err, ok := v.(error); ok {
			return false, jqError(err, steps)
		}
		if v != nil && !yield(match{value: v, json: true}) {
			return false, nil
		}
	}
}

func jqError(err error, steps int) error {
	if errors.Is(err, errJQSteps) {
		return unreadable("the jq expression took more than %d steps", steps)
	}
	return invalid("", "the jq expression failed: %v", err)
}

// json is the row's value, or the page's.
func (s *scope) json() (any, error) {
	if s.row == nil {
		return s.page.jsonValue()
	}
	return s.row.value, nil
}

// stepContext is done after so many looks at it; gojq looks before each step.
type stepContext struct {
	context.Context
	left int
}

func (c *stepContext) Done() <-chan struct{} {
	if c.left--; c.left >= 0 {
		return nil
	}
	done := make(chan struct{})
	close(done)
	return done
}

func (c *stepContext) Err() error {
	if c.left < 0 {
		return errJQSteps
	}
	return nil
}
