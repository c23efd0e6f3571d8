package script

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	starlarkmath "go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

func module(name string, members starlark.StringDict) *starlarkstruct.Module {
	return &starlarkstruct.Module{Name: name, Members: members}
}

// predeclared returns the names of every script, and more.
func predeclared(more starlark.StringDict) starlark.StringDict {
	all := starlark.StringDict{
		"json": jsonModule, "re": reModule, "time": timeModule, "hash": hashModule,
		"math":   starlarkmath.Module,
		"struct": starlark.NewBuiltin("struct", starlarkstruct.Make),
		"abort": builtin("abort", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			var reason string
			if err := starlark.UnpackArgs("abort", args, kwargs, "reason", &reason); err != nil {
				return nil, err
			}
			return nil, &AbortError{Reason: shorten(reason)}
		}),
	}
	maps.Copy(all, more)
	return all
}

// moduleNames are predeclared in modules, scriptNames in scripts.
var (
	moduleNames = predeclared(starlark.StringDict{"tool": toolFunction, "counter": counterFunction})
	scriptNames = predeclared(hostFunctions)
)

var jsonModule = module("json", starlark.StringDict{
	"encode": builtin("json.encode", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var v starlark.Value
		if err := starlark.UnpackPositionalArgs("json.encode", args, kwargs, 1, &v); err != nil {
			return nil, err
		}
		out, err := encode(v, maxEncoded)
		if errors.Is(err, errOutput) {
			err = limitError("%d bytes of JSON", maxEncoded)
		}
		if err != nil {
			return nil, fmt.Errorf("json.encode: %w", err)
		}
		return starlark.String(out), nil
	}),
	"decode": builtin("json.decode", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var s string
		var otherwise starlark.Value
		if err := starlark.UnpackArgs("json.decode", args, kwargs, "text", &s, "default?", &otherwise); err != nil {
			return nil, err
		}
		v, err := decode(s)
		if err != nil && otherwise != nil && !errors.Is(err, ErrLimit) {
			return otherwise, nil
		}
		return v, err
	}),
	"indent": builtin("json.indent", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var s, prefix string
		indent := "\t"
		if err := starlark.UnpackArgs("json.indent", args, kwargs, "text", &s, "prefix?", &prefix, "indent?", &indent); err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err := json.Indent(&out, []byte(s), prefix, indent); err != nil {
			return nil, fmt.Errorf("json.indent: %w", err)
		}
		return starlark.String(out.String()), nil
	}),
})

// timeModule counts in seconds since 1970, UTC, as floats.
var timeModule = module("time", starlark.StringDict{
	"now": builtin("time.now", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if err := starlark.UnpackPositionalArgs("time.now", args, kwargs, 0); err != nil {
			return nil, err
		}
		return starlark.Float(float64(r.now().UnixMicro()) / 1e6), nil
	}),
	"parse": builtin("time.parse", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var s string
		if err := starlark.UnpackPositionalArgs("time.parse", args, kwargs, 1, &s); err != nil {
			return nil, err
		}
		if len(s) > maxTime {
			return nil, fmt.Errorf("time.parse: a text of more than %d bytes is no time", maxTime)
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", time.DateOnly} {
			if at, err := time.Parse(layout, s); err == nil {
				return starlark.Float(float64(at.UnixMicro()) / 1e6), nil
			}
		}
		return nil, fmt.Errorf("time.parse: %.60q is no time such as 2006-01-02T15:04:05Z, or date", s)
	}),
	"format": builtin("time.format", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var seconds starlark.Value
		format := "%Y-%m-%dT%H:%M:%SZ"
		if err := starlark.UnpackArgs("time.format", args, kwargs, "seconds", &seconds, "format?", &format); err != nil {
			return nil, err
		}
		at, ok := starlark.AsFloat(seconds)
		if !ok || math.Abs(at) > 253402300799 { // the end of the year 9999
			return nil, errors.New("time.format: seconds must be a number of seconds since 1970, before the year 10000")
		}
		return strftime(time.UnixMicro(int64(math.Floor(at*1e6))).UTC(), format)
	}),
})

const (
	maxTime    = 64        // bytes of a time
	maxEncoded = 256 << 20 // bytes of json.encode's result: shared values are written each time
)

// layouts has the layouts of package time for the directives of strftime.
var layouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'I': "03", 'p': "PM", 'f': ".000000",
	'j': "002", 'y': "06", 'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'z': "-0700", 'Z': "MST", 'F': time.DateOnly, 'T': time.TimeOnly,
}

func strftime(at time.Time, format string) (starlark.Value, error) {
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		if i++; i >= len(format) {
			return nil, errors.New("time.format: the format ends in %")
		}
		layout, ok := layouts[format[i]]
		switch {
		case ok:
			out.WriteString(strings.TrimPrefix(at.Format(layout), "."))
		case format[i] == '%':
			out.WriteByte('%')
		default:
			return nil, fmt.Errorf("time.format: no directive %%%c", format[i])
		}
	}
	return starlark.String(out.String()), nil
}

var hashModule = module("hash", starlark.StringDict{
	"sha256": digest("hash.sha256", func(s string) []byte { sum := sha256.Sum256([]byte(s)); return sum[:] }),
	"md5":    digest("hash.md5", func(s string) []byte { sum := md5.Sum([]byte(s)); return sum[:] }),
	"hmac_sha256": builtin("hash.hmac_sha256", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var key, s string
		if err := starlark.UnpackArgs("hash.hmac_sha256", args, kwargs, "key", &key, "text", &s); err != nil {
			return nil, err
		}
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(s))
		return starlark.String(hex.EncodeToString(mac.Sum(nil))), nil
	}),
})

// digest makes a function from a text to its hash in hexadecimal digits.
func digest(name string, sum func(string) []byte) *starlark.Builtin {
	return builtin(name, func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var s string
		if err := starlark.UnpackPositionalArgs(name, args, kwargs, 1, &s); err != nil {
			return nil, err
		}
		return starlark.String(hex.EncodeToString(sum(s))), nil
	})
}
