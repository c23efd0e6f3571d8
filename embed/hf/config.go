package hf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// config is config.json.
type config struct {
	Type         string  `json:"model_type"`
	Hidden       int     `json:"hidden_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	Intermediate int     `json:"intermediate_size"`
	Activation   string  `json:"hidden_act"`
	Epsilon      float64 `json:"layer_norm_eps"`
	Positions    int     `json:"max_position_embeddings"`
	Vocabulary   int     `json:"vocab_size"`
	Position     string  `json:"position_embedding_type"`
}

// pooling says how the vectors of the tokens become one vector.
type pooling string

const (
	poolMean pooling = "mean"
	poolCLS  pooling = "cls"
)

func readConfig(dir string) (c config, err error) {
	if err := readJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		return c, err
	}
	switch {
	case c.Type != "bert":
		return c, fmt.Errorf("config.json: an architecture of type %q; only bert is supported", c.Type)
	case c.Activation != "gelu":
		return c, fmt.Errorf("config.json: hidden_act %q; only gelu is supported", c.Activation)
	case c.Position != "" && c.Position != "absolute":
		return c, fmt.Errorf("config.json: position_embedding_type %q; only absolute is supported", c.Position)
	}
	for key, n := range map[string]int{
		"hidden_size": c.Hidden, "num_hidden_layers": c.Layers, "num_attention_heads": c.Heads,
		"intermediate_size": c.Intermediate, "max_position_embeddings": c.Positions, "vocab_size": c.Vocabulary,
	} {
		if n < 1 || n > 1<<20 {
			return c, fmt.Errorf("config.json: %s is %d", key, n)
		}
	}
	if c.Hidden%c.Heads != 0 {
		return c, fmt.Errorf("config.json: hidden_size %d cannot be shared by %d heads", c.Hidden, c.Heads)
	}
	if c.Epsilon <= 0 {
		c.Epsilon = 1e-12
	}
	return c, nil
}

// readPooling returns how the model pools; the default is the mean.
func readPooling(dir string) (pooling, error) {
	var modules []struct{ Type, Path string }
	if err := readOptional(filepath.Join(dir, "modules.json"), &modules); err != nil {
		return "", err
	}
	path := "1_Pooling"
	for _, module := range modules {
		switch kind := module.Type[strings.LastIndexByte(module.Type, '.')+1:]; kind {
		case "Pooling":
			path = filepath.Base(module.Path)
		case "Transformer", "Normalize":
		default:
			return "", fmt.Errorf("modules.json: a step of type %q is not supported", kind)
		}
	}
	var modes map[string]any
	if err := readOptional(filepath.Join(dir, path, "config.json"), &modes); err != nil {
		return "", err
	}
	found := pooling("")
	for key, value := range modes {
		mode, isMode := strings.CutPrefix(key, "pooling_mode_")
		if on, _ := value.(bool); !isMode || !on {
			continue
		}
		switch {
		case found != "":
			return "", fmt.Errorf("%s/config.json: more than one pooling mode", path)
		case mode == "mean_tokens":
			found = poolMean
		case mode == "cls_token":
			found = poolCLS
		default:
			return "", fmt.Errorf("%s/config.json: pooling_mode_%s is not supported; mean_tokens and cls_token are", path, mode)
		}
	}
	found = cmp.Or(found, poolMean)
	return found, nil
}

// readLimit returns how many tokens of a text are read, including [CLS] and [SEP]. The truncation in tokenizer.json
// has another purpose.
func readLimit(dir string, positions int) (int, error) {
	var sentence struct {
		Max int `json:"max_seq_length"`
	}
	if err := readOptional(filepath.Join(dir, "sentence_bert_config.json"), &sentence); err != nil {
		return 0, err
	}
	if sentence.Max < 3 || sentence.Max > positions {
		return positions, nil
	}
	return sentence.Max, nil
}

func readJSON(name string, v any) error {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

func readOptional(name string, v any) error {
	if err := readJSON(name, v); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
