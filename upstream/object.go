package upstream

import "encoding/json"

// object is a JSON object being written.
type object []byte

func newObject(size int) object { return append(make(object, 0, size+2), '{') }

func (o *object) add(key string, value []byte) {
	if len(*o) > 1 {
		*o = append(*o, ',')
	}
	name, _ := json.Marshal(key) // of a string: never fails
	*o = append(append(append(*o, name...), ':'), value...)
}

func (o *object) text(key, value string) {
	quoted, _ := json.Marshal(value)
	o.add(key, quoted)
}

func (o *object) empty() bool { return len(*o) == 1 }

func (o *object) end() []byte { return append(*o, '}') }
