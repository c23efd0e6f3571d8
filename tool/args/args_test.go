package args_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"toolfinch/tool/args"
)

// all are the arguments of a tool that has one of each kind.
type all struct {
	Text         string
	Choice       string
	Number, Any  int
	Perhaps      *int
	Texts        []string
	Object, Raw  json.RawMessage
	Given, Whole bool
	Inner        string
}

func (a *all) read(arguments string) error {
	return args.Read("the_tool", json.RawMessage(arguments),
		args.Text("text", &a.Text),
		args.OneOf("choice", &a.Choice, "this", "that"),
		args.Int("number", &a.Number, 1, 50),
		args.Int("any", &a.Any, 0, args.NoBound),
		args.IntPointer("perhaps", &a.Perhaps, 0, 9),
		args.Texts("texts", &a.Texts),
		args.Object("object", &a.Object),
		args.Raw("raw", &a.Raw),
		args.Bool("whole", &a.Whole),
		args.Members("filter", &a.Given, args.Text("inner", &a.Inner)),
		args.Hidden(args.Int("old_name", &a.Number, 1, 50)),
	)
}

func TestReadAcceptsWhatModelsWrite(t *testing.T) {
	zero := 0
	for arguments, want := range map[string]all{
		``:                             {},
		` `:                            {},
		`{}`:                           {},
		`{"text":"a","choice":"that"}`: {Text: "a", Choice: "that"},
		`null`:                         {},
		`{"text":null,"number":null,"old_name":null,"texts":null,"filter":null,"raw":null}`: {},
		`{"number":7,"any":2e3,"perhaps":0}`:                                                {Number: 7, Any: 2000, Perhaps: &zero},
		`{"number":"7"}`:                                                                    {Number: 7},
		`{"old_name":8}`:                                                                    {Number: 8},
		`{"texts":["a","b"]}`:                                                               {Texts: []string{"a", "b"}},
		`{"texts":[]}`:                                                                      {Texts: []string{}},
		`{"texts":"a b"}`:                                                                   {Texts: []string{"a b"}},
		`{"texts":" [\"a\", \"b\"]"}`:                                                       {Texts: []string{"a", "b"}},
		`{"object":{"a":1.0},"raw":[1.0]}`:                                                  {Object: []byte(`{"a":1.0}`), Raw: []byte(`[1.0]`)},
		`{"object":"{\"a\":1.0}","whole":true}`:                                             {Object: []byte(`{"a":1.0}`), Whole: true},
		`{"filter":{"inner":"x"}}`:                                                          {Given: true, Inner: "x"},
		`{"filter":"{\"inner\":\"x\"}"}`:                                                    {Given: true, Inner: "x"},
	} {
		var got all
		if err := got.read(arguments); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %+v, %v", arguments, got, err)
		}
	}
}

func TestReadSaysWhatToSendInstead(t *testing.T) {
	const takes = "the_tool takes text, choice, number, any, perhaps, texts, object, raw, whole and filter"
	for arguments, want := range map[string]string{
		`[]`:                      "the arguments must be a JSON object; " + takes,
		`{"text":`:                "the arguments must be a JSON object; " + takes,
		`{"txt":"a"}`:             `unknown argument "txt"; did you mean "text"? ` + takes,
		`{"zzzzzzzzzzzz":null}`:   `unknown argument "zzzzzzzzzzzz"; ` + takes,
		`{"text":"a","text":"b"}`: "text is given twice",
		`{"text":7}`:              "text must be text, not 7",
		`{"choice":"other"}`:      `choice must be one of this, that, not "other"`,
		`{"number":0}`:            "number must be a whole number from 1 to 50, not 0",
		`{"number":1.5}`:          "number must be a whole number from 1 to 50, not 1.5",
		`{"number":"x"}`:          `number must be a whole number from 1 to 50, not "x"`,
		`{"any":-1}`:              "any must be a whole number from 0, not -1",
		`{"any":1e300}`:           "any must be a whole number from 0, not 1e300",
		`{"perhaps":10}`:          "perhaps must be a whole number from 0 to 9, not 10",
		`{"texts":["a",null]}`:    `texts must be an array of texts, like ["a", "b"], not ["a",null]`,
		`{"texts":7}`:             `texts must be an array of texts, like ["a", "b"], not 7`,
		`{"object":"[1]"}`:        `object must be an object, not "[1]"`,
		`{"object":""}`:           `object must be an object, not ""`,
		`{"whole":"yes"}`:         `whole must be true or false, not "yes"`,
		`{"filter":7}`:            "filter must be an object of inner, not 7",
		`{"filter":{"inner":1}}`:  "filter.inner must be text, not 1",
		`{"filter":{"iner":1}}`:   `unknown argument of filter "iner"; did you mean "inner"? filter takes inner`,
	} {
		var wrong *args.Error
		if err := new(all).read(arguments); !errors.As(err, &wrong) || wrong.Problem != want {
			t.Errorf("%s: %+v, want %+v", arguments, err, want)
		}
	}
	const force = `unknown field "force"; POST /reindex takes none`
	if err := args.ReadFields("POST /reindex", json.RawMessage(`{"force":1}`)); err == nil || err.Error() != force {
		t.Errorf("a field of nothing: %v", err)
	}
}

func TestUnknown(t *testing.T) {
	for _, test := range []struct {
		name  string
		known []string
		want  string
	}{
		{"clok", []string{"clock", "github"}, `unknown server "clok"; did you mean "clock"?`},
		{"zzzzzz", []string{"clock", "github", "files"}, `unknown server "zzzzzz"; there are clock, github and files`},
		{"zzzzzz", nil, `unknown server "zzzzzz"; there is none here`},
	} {
		if got := args.Unknown("server", test.name, test.known).Error(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
