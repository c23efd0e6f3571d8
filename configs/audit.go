package configs

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"

	"toolfinch/internal/document"
	"toolfinch/trust/audit"
)

// auditKeys are the keys of audit.
var auditKeys = section[audit.Settings]{keys: keys{
	{
		name: "file", without: "`audit.jsonl` in `data_dir`",
		doc:   "the file; `audit: PATH` is short for it",
		value: in(func(a *audit.Settings) *string { return &a.File }).is(str{check: (*decoder).path}),
	},
	{
		name:  "max_size",
		doc:   "bytes at which the file is rotated to `audit-TIME.jsonl`",
		value: in(func(a *audit.Settings) *int { return &a.MaxSize }).is(size{}, audit.DefaultMaxSize),
	},
	{
		name:  "max_age",
		doc:   "age of the first line at which it is rotated, 1m to 744h",
		value: in(func(a *audit.Settings) *time.Duration { return &a.MaxAge }).is(duration{time.Minute, 31 * 24 * time.Hour, "24h"}, audit.DefaultMaxAge),
	},
	{
		name:  "keep",
		doc:   "rotated files to keep; `0`: all",
		value: in(func(a *audit.Settings) *int { return &a.Keep }).is(number[int]{0, 100_000}, audit.DefaultKeep),
	},
	{
		name:  "arguments",
		doc:   "`digest`: SHA-256 only; `full`: also the content without secrets, cut at 4 KiB",
		value: in(func(a *audit.Settings) *audit.Arguments { return &a.Arguments }).is(choice[audit.Arguments]{words: []audit.Arguments{audit.ArgumentsDigest, audit.ArgumentsFull}}, audit.ArgumentsDigest),
	},
	{
		name:  "results",
		doc:   "writes the content of results, likewise",
		value: in(func(a *audit.Settings) *bool { return &a.Results }).is(boolean{}),
	},
}}

// auditKind is true, false (nil), a file or a mapping.
type auditKind struct{ onOff onOff[audit.Settings] }

func (k auditKind) read(d *decoder, n *document.Node, label string, to **audit.Settings) bool {
	if n.Kind == document.Text {
		var word string
		if !d.text(n, label, &word) {
			return false
		}
		if !isBool(strings.ToLower(word)) {
			*to = nil
			settings := auditKeys.fresh()
			if !auditKeys.find("file").value.read(d, n, label, &settings) {
				return false
			}
			*to = &settings
			return true
		}
	}
	return k.onOff.read(d, n, label, to)
}

func (k auditKind) show(s *secrets, a *audit.Settings) *document.Node { return k.onOff.show(s, a) }
func (k auditKind) schema() schema                                    { return anyOf(k.onOff.schema(), anyText) }

// AuditLog returns the settings of the audit log with its file, nil without a log.
func (c *Config) AuditLog() *audit.Settings {
	if c.Audit == nil {
		return nil
	}
	settings := *c.Audit
	settings.File = cmp.Or(settings.File, filepath.Join(c.DataDir, audit.FileName))
	return &settings
}
