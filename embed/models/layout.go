package models

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// wanted is a file that a model's folder has, under the name it has at the hub.
type wanted struct {
	name  string
	limit int64 // bytes it may have at most
	need  bool  // without it there is no model
}

const (
	weightsFile   = "model.safetensors"
	tokenizerFile = "tokenizer.json"
	vocabFile     = "vocab.txt" // does where there is no tokenizer.json
	smallFile     = 1 << 20     // the limit of settings; they are fetched whole
)

// layout lists the files, the small ones first, so that mistakes in a model show
// before its weights are fetched.
var layout = []wanted{
	{"config.json", smallFile, true},
	{"modules.json", smallFile, false},
	{"1_Pooling/config.json", smallFile, false},
	{"config_sentence_transformers.json", smallFile, false},
	{"sentence_bert_config.json", smallFile, false},
	{tokenizerFile, 64 << 20, false},
	{vocabFile, 16 << 20, false},
	{weightsFile, 4 << 30, true},
}

// missing names the files that a model cannot be without; nil when all are there.
func missing(has func(file string) bool) (names []string) {
	for _, f := range layout {
		if f.need && !has(f.name) {
			names = append(names, f.name)
		}
	}
	if !has(tokenizerFile) && !has(vocabFile) {
		names = append(names, tokenizerFile+" (or "+vocabFile+")")
	}
	return names
}

// plausible refuses files that are certainly wrong: a login page instead of
// settings, or the pointer that git leaves in place of large files.
func plausible(name, path string) error {
	switch name {
	case weightsFile:
		return plausibleWeights(path)
	case vocabFile, licenseFile:
		return nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !json.Valid(raw) || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) && name != "modules.json" {
		return fmt.Errorf("%s is no JSON of a model", name)
	}
	return nil
}

// plausibleWeights looks at the frame of a safetensors file: the length of a JSON
// header in eight bytes, then the header.
func plausibleWeights(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var head [9]byte
	_, err = io.ReadFull(f, head[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if length := binary.LittleEndian.Uint64(head[:8]); err != nil || head[8] != '{' || length > uint64(info.Size()-8) {
		return fmt.Errorf("%s is no safetensors file (a pointer left by git? then run: git lfs pull)", weightsFile)
	}
	return nil
}

const licenseFile = "LICENSE"
