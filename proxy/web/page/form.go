package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/internal/rawjson"
)

// form is the filled-in part of a field.
type form struct {
	Value string   // the text, number or JSON; of a choice the number of the option; of a boolean true or false
	Items []*param // items of a list
	Error string   // what is wrong with the value
	Open  bool     // a value below is filled in or wrong
	Focus bool     // the input has the focus
}

// maxItems bounds the items of one list of a form.
const maxItems = 50

// Layouts in which browsers send a time. They have no zone.
const (
	dateTime        = "2006-01-02T15:04:05"
	dateTimeMinutes = "2006-01-02T15:04"
)

// take reads the sent form and returns the value as JSON, nil for none. Errors are kept in the fields.
func (f *param) take(sent url.Values) json.RawMessage {
	value := strings.ReplaceAll(sent.Get(f.ID()), "\r\n", "\n")
	f.Value, f.Error = value, ""
	switch f.Kind {
	case kindText:
		return f.takeText(value)
	case kindNumber:
		value = strings.TrimSpace(value)
		if value == "" {
			return f.none()
		}
		if !json.Valid([]byte(value)) || !strings.ContainsAny(value[:1], "-0123456789") {
			f.Error = "it is no number"
			return nil
		}
		if n, ok := rawjson.Int([]byte(value)); f.whole && ok && strings.ContainsAny(value, ".eE") {
			return json.RawMessage(strconv.Itoa(n))
		}
		return json.RawMessage(value)
	case kindBool:
		if value == "true" || value == "false" {
			return json.RawMessage(value)
		}
		return f.none()
	case kindChoice:
		if i, err := strconv.Atoi(value); err == nil && i >= 0 && i < len(f.Options) {
			return f.Options[i].Value
		}
		return f.none()
	case kindChecks:
		return f.takeChecks(sent[f.ID()])
	case kindObject:
		return f.takeObject(sent)
	case kindList:
		return f.takeList(sent)
	}
	if strings.TrimSpace(value) == "" {
		return f.none()
	}
	if !json.Valid([]byte(value)) {
		f.Error = "it is no JSON: " + jsonFault(value)
		return nil
	}
	return json.RawMessage(value)
}

// none returns the value of an empty field.
func (f *param) none() json.RawMessage {
	if f.Required && f.Path != "" {
		f.Error = "it is required"
	}
	return nil
}

func (f *param) takeText(value string) json.RawMessage {
	if value == "" {
		if f.isItem() {
			return json.RawMessage(`""`)
		}
		return f.none()
	}
	if f.Input == "datetime-local" {
		for _, layout := range []string{dateTime, dateTimeMinutes} {
			if at, err := time.Parse(layout, value); err == nil {
				return rawjson.Quote(at.Format(dateTime) + "Z")
			}
		}
	}
	if f.Error = misformed(f.Input, value); f.Error != "" {
		return nil
	}
	if !keeps(value) {
		f.Error = "it has a control character, which is sent as JSON"
		return nil
	}
	return rawjson.Quote(value)
}

// misformed says what is wrong with a text for an HTML input type, "" for nothing. JSON mode accepts all texts.
func misformed(input, value string) string {
	switch input {
	case "date":
		if _, err := time.Parse(time.DateOnly, value); err != nil {
			return "it is no date, as 2026-01-31"
		}
	case "datetime-local":
		if _, err := time.Parse(time.RFC3339, value); err != nil {
			return "it is no time, as 2026-01-31T12:00:00Z"
		}
	case "email":
		if one, err := mail.ParseAddress(value); err != nil || one.Address != value {
			return "it is no email address"
		}
	case "url":
		if u, err := url.Parse(value); err != nil || u.Scheme == "" {
			return "it is no URI"
		}
	}
	return ""
}

// isItem reports whether a field is an item of a list. An item cannot be absent.
func (f *param) isItem() bool {
	_, err := strconv.Atoi(f.Name)
	return err == nil && f.Required
}

func (f *param) takeChecks(sent []string) json.RawMessage {
	var values []json.RawMessage
	for i := range f.Options {
		if f.Options[i].On = slices.Contains(sent, strconv.Itoa(i)); f.Options[i].On {
			values = append(values, f.Options[i].Value)
		}
	}
	if values == nil && !f.Required {
		return nil
	}
	return rawjson.Array(values)
}

func (f *param) takeObject(sent url.Values) json.RawMessage {
	var object rawjson.Object
	for _, one := range f.Fields {
		if value := one.take(sent); value != nil {
			object.Add(one.Name, value)
		}
	}
	if object.Empty() && !f.Required {
		f.forgive() // the object is absent, so no field is required
		return nil
	}
	f.Open = true
	return object.JSON()
}

// forgive removes the errors of empty fields.
func (f *param) forgive() {
	for _, one := range f.Fields {
		if one.Value == "" {
			one.Error = ""
		}
		one.forgive()
		f.Open = f.Open || one.Error != ""
	}
}

func (f *param) takeList(sent url.Values) json.RawMessage {
	count, _ := strconv.Atoi(sent.Get(f.CountName()))
	f.Items = nil
	var values []json.RawMessage
	for i := range min(max(count, 0), maxItems) {
		one := f.item(i)
		if value := one.take(sent); value != nil {
			values = append(values, value)
		}
		f.Items = append(f.Items, one)
	}
	if len(f.Items) == 0 && !f.Required {
		return nil
	}
	return rawjson.Array(values)
}

// fill fills a value into the form. It reports whether the form can represent the whole value.
func (f *param) fill(value json.RawMessage) bool {
	if value == nil {
		return true
	}
	if string(value) == "null" {
		f.Value = ""
		return f.Kind == kindJSON && f.fillJSON(value)
	}
	switch f.Kind {
	case kindText:
		if value[0] != '"' {
			return false
		}
		f.Value = rawjson.Text(value)
		if f.Input == "datetime-local" {
			at, err := time.Parse(time.RFC3339, f.Value)
			if err != nil || at.UTC().Format(dateTime)+"Z" != f.Value {
				f.Input = "text"
			} else {
				f.Value = at.UTC().Format(dateTime)
			}
		}
		return keeps(f.Value) && !strings.Contains(f.Value, "\r") && (f.Value != "" || f.isItem()) && (f.Input == "textarea" || !strings.Contains(f.Value, "\n"))
	case kindNumber, kindBool:
		if strings.ContainsAny(string(value[:1]), `"[{`) {
			return false
		}
		f.Value = string(value)
		return (value[0] == 't' || value[0] == 'f') == (f.Kind == kindBool)
	case kindChoice:
		i := f.option(value)
		if i < 0 {
			return false
		}
		f.Value = strconv.Itoa(i)
		return true
	case kindChecks:
		return f.fillChecks(value)
	case kindObject:
		return f.fillObject(value)
	case kindList:
		return f.fillList(value)
	}
	return f.fillJSON(value)
}

func (f *param) fillJSON(value json.RawMessage) bool {
	f.Value = indented(value)
	return true
}

func (f *param) option(value json.RawMessage) int {
	return slices.IndexFunc(f.Options, func(c choice) bool { return equal(c.Value, value) })
}

func (f *param) fillChecks(value json.RawMessage) bool {
	last := -1
	if list(value) == nil {
		return false
	}
	for one := range rawjson.Elements(value) {
		i := f.option(one)
		if i <= last { // no option, a repeated option, or another order
			return false
		}
		f.Options[i].On, last = true, i
	}
	return last >= 0 || f.Required
}

func (f *param) fillObject(value json.RawMessage) bool {
	if !rawjson.IsObject(value) {
		return false
	}
	all, n := true, 0
	for _, one := range f.Fields {
		if of := rawjson.Member(value, one.Name); of != nil {
			all, n = one.fill(of) && all, n+1
		}
	}
	members := 0
	for range rawjson.Members(value) {
		members++
	}
	f.Open = n > 0
	return all && members == n && (n > 0 || f.Required)
}

func (f *param) fillList(value json.RawMessage) bool {
	if list(value) == nil {
		return false
	}
	all := true
	f.Items = nil
	for one := range rawjson.Elements(value) {
		if len(f.Items) >= maxItems {
			return false
		}
		item := f.item(len(f.Items))
		all = item.fill(one) && all
		f.Items = append(f.Items, item)
	}
	return all && (len(f.Items) > 0 || f.Required)
}

// Shown is the value for a textarea, after a line break: HTML removes the first one.
func (f *param) Shown() template.HTML {
	if f.Kind == kindJSON {
		return kept("\n" + keptJSON(f.Value))
	}
	return kept("\n" + f.Value)
}
func (c *calling) Shown() template.HTML { return kept("\n" + keptJSON(c.JSON)) }

func (f *param) Item() bool { return f.isItem() }

// Label is the name of the field for people. They count items from 1.
func (f *param) Label() string {
	if n, err := strconv.Atoi(f.Name); err == nil && f.isItem() {
		return strconv.Itoa(n + 1)
	}
	return f.Name
}

func (f *param) Whole() bool { return f.whole }

// equal reports whether two values are equal. The order of members does not matter.
func equal(a, b json.RawMessage) bool {
	if bytes.Equal(compact(a), compact(b)) {
		return true
	}
	var x, y any
	for _, one := range []struct {
		raw json.RawMessage
		to  *any
	}{{a, &x}, {b, &y}} {
		decoder := json.NewDecoder(bytes.NewReader(one.raw))
		decoder.UseNumber()
		if decoder.Decode(one.to) != nil {
			return false
		}
	}
	return bytes.Equal(rawjson.Of(x), rawjson.Of(y))
}

// focus gives the focus to the first input of f.
func (f *param) focus() {
	for _, one := range slices.Concat(f.Fields, f.Items) {
		f.Open = true
		one.focus()
		return
	}
	f.Focus = true
}

// focusFault gives the focus to the first input with an error, and reports whether there is one.
func (f *param) focusFault() bool {
	if slices.ContainsFunc(slices.Concat(f.Fields, f.Items), (*param).focusFault) {
		return true
	}
	if f.Error != "" {
		f.focus()
	}
	return f.Error != ""
}

// DescribedBy is the value of aria-describedby.
func (f *param) DescribedBy() string {
	var ids []string
	if f.About != "" && !f.isItem() {
		ids = append(ids, "d-"+f.ID())
	}
	if f.Error != "" {
		ids = append(ids, "e-"+f.ID())
	}
	return strings.Join(ids, " ")
}

// edit adds an item to a list ("add:PATH") or removes an item ("remove:PATH/N"). It reports whether it did.
func (f *param) edit(what string) bool {
	verb, path, _ := strings.Cut(what, ":")
	switch verb {
	case "add":
		if of := f.find(path); of != nil && of.Kind == kindList && len(of.Items) < maxItems {
			one := of.item(len(of.Items))
			of.Items = append(of.Items, one)
			one.focus()
			return true
		}
	case "remove":
		at := strings.LastIndexByte(path, '/')
		if at < 0 {
			return false
		}
		n, err := strconv.Atoi(path[at+1:])
		of := f.find(path[:at])
		if err != nil || of == nil || of.Kind != kindList || n < 0 || n >= len(of.Items) {
			return false
		}
		of.Items = slices.Delete(of.Items, n, n+1)
		for i, one := range of.Items {
			one.move(of, strconv.Itoa(i))
		}
		if near := min(n, len(of.Items)-1); near >= 0 {
			of.Items[near].focus()
		} else {
			of.focus()
		}
		return true
	}
	return false
}

// find returns the field at a path, nil for none.
func (f *param) find(path string) *param {
	if f.Path == path {
		return f
	}
	for _, one := range slices.Concat(f.Fields, f.Items) {
		if path == one.Path || strings.HasPrefix(path, one.Path+"/") {
			return one.find(path)
		}
	}
	return nil
}

// move gives a field another name, and the fields below another path.
func (f *param) move(parent *param, name string) {
	f.Name, f.Path, f.Where = name, parent.Path+"/"+token(name), parent.Where+"/"+name
	if of := f.item; of != nil {
		f.item = func(n int) *param {
			one := of(n)
			one.move(f, strconv.Itoa(n))
			return one
		}
	}
	for _, one := range slices.Concat(f.Fields, f.Items) {
		one.move(f, one.Name)
	}
}

// blame adds each violation to the field that it is about, and returns the violations that belong to no field.
func (f *param) blame(violations []string) (rest []string) {
	for _, text := range violations {
		at, what := f.blamed(text)
		switch {
		case at == nil || at == f && at.Kind == kindObject:
			if !f.faulty() || !strings.Contains(text, "missing propert") {
				rest = append(rest, strings.TrimPrefix(text, "/: "))
			}
		case at.Kind == kindObject && strings.Contains(what, "missing propert") && at.faulty():
			// the missing fields already have this error
		case at.Error == "":
			at.Error = what
		}
	}
	f.open()
	return rest
}

// blamed returns the innermost field that a violation is about, and the violation's text without the path.
func (f *param) blamed(text string) (at *param, what string) {
	for _, one := range slices.Concat(f.Fields, f.Items) {
		if deeper, what := one.blamed(text); deeper != nil {
			return deeper, what
		}
	}
	where := cmp.Or(f.Where, "/")
	if rest, ok := strings.CutPrefix(text, where+": "); ok {
		return f, rest
	}
	// The field is one input, but the violation may be about a value inside of it.
	if rest, ok := strings.CutPrefix(text, where+"/"); ok && (f.Kind == kindJSON || f.Kind == kindChecks) && f.Where != "" {
		return f, rest
	}
	return nil, ""
}

// faulty reports whether f or a field below has an error.
func (f *param) faulty() bool {
	return f.Error != "" || slices.ContainsFunc(slices.Concat(f.Fields, f.Items), (*param).faulty)
}

// open opens all objects that contain errors.
func (f *param) open() {
	for _, one := range slices.Concat(f.Fields, f.Items) {
		one.open()
	}
	f.Open = f.Open || f.faulty()
}

// jsonFault says why a text is no JSON object.
func jsonFault(text string) string {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return err.Error()
	}
	return "it is no object"
}
