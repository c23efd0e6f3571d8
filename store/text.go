package store

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/stdlib"
)

// Texts of strangers may contain zero bytes and invalid UTF-8, which a PostgreSQL text cannot store. Each such
// byte, and each byte of escape itself, is stored as escape and two hexadecimal digits.
const escape = "\uE000" // of the private use area

// connector makes connections that accept any text.
type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return escaping{conn.(*stdlib.Conn)}, nil
}

type escaping struct{ *stdlib.Conn }

// CheckNamedValue converts each argument.
func (escaping) CheckNamedValue(value *driver.NamedValue) error {
	if v := reflect.ValueOf(value.Value); v.Kind() == reflect.String {
		value.Value = escaped(v.String())
	}
	return nil
}

func (c escaping) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return unescaping{rows.(*stdlib.Rows)}, nil
}

type unescaping struct{ *stdlib.Rows }

func (r unescaping) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	for i, value := range dest {
		if text, ok := value.(string); ok {
			dest[i] = unescaped(text)
		}
	}
	return err
}

func escaped(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) && !strings.Contains(text, escape) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		part := text[i : i+size]
		if r == 0 || r == utf8.RuneError && size == 1 || part == escape {
			for _, b := range []byte(part) {
				fmt.Fprintf(&out, "%s%02x", escape, b)
			}
		} else {
			out.WriteString(part)
		}
		i += size
	}
	return out.String()
}

func unescaped(text string) string {
	before, rest, found := strings.Cut(text, escape)
	if !found {
		return text
	}
	var out strings.Builder
	out.WriteString(before)
	for found {
		if b, err := hex.DecodeString(rest[:min(2, len(rest))]); err == nil {
			out.Write(b)
			rest = rest[2*len(b):]
		}
		before, rest, found = strings.Cut(rest, escape)
		out.WriteString(before)
	}
	return out.String()
}
