package demo

import (
	"math"
	"strings"
	"testing"
)

func TestEvaluate(t *testing.T) {
	for expression, want := range map[string]float64{
		"1":                                   1,
		" 1 + 2 * 3 ":                         7,
		"(1+2)*3":                             9,
		"7 - 2 - 1":                           4,
		"8 / 4 / 2":                           1,
		"7 // 2 + 7 % 4":                      6,
		"2*-3":                                -6,
		".5 + 5.":                             5.5,
		"1e3 + 1E-1":                          1000.1,
		"sqrt(16) + abs(-1)":                  5,
		"sin(pi/2)":                           1,
		"log(e) + log(1000, 10)":              4,
		"min(3, 1, 2) + max(1, 2)":            3,
		"pow(2, 10)":                          1024,
		"round(2.5) + floor(-0.5)":            2,
		"2 * pow(3 + 4, 2) / sqrt(4)":         49,
		"9007199254740993 - 9007199254740992": 1, // whole numbers are exact until the end
	} {
		got, err := evaluate(t.Context(), expressionArgs{expression})
		if err != nil || math.Abs(got.Result-want) > 1e-9 {
			t.Errorf("%s: got %v, %v, want %v", expression, got, err, want)
		}
	}
}

func TestEvaluateSaysWhatIsWrong(t *testing.T) {
	for expression, want := range map[string]string{
		"":                          "expression:1:1",
		"1 +":                       "expression:1:4",
		"2 3":                       "expression:1:4",
		"(1 + 2":                    "want ')'",
		"1 / (2 - 2)":               "division by zero",
		"5 % 0":                     "by zero",
		"sqrt(-1)":                  "not a real number",
		"pow(9, pow(9, 9))":         "too large",
		"1e308 * 10":                "too large",
		"2^10":                      "write pow(x, y)",
		"2**10":                     "write pow(x, y)",
		"x + 1":                     `unknown name "x"`,
		"open(1)":                   `unknown name "open"`,
		"sin(1, 2)":                 "sin",
		"sin":                       "not a number",
		"1 + ä":                     `unknown name "ä"`,
		`"a" * 1000000000`:          "at character 1: only numbers",
		"[0] * 1000000000":          "at character 1: only numbers",
		"(1, 2) * 1000000000":       "only numbers",
		"[x for x in range(9)]":     "only numbers",
		"(lambda: 1)()":             "only numbers",
		"1 if 1 else 2":             "only numbers",
		"1 << 500":                  "only numbers",
		"1 < 2":                     "only numbers",
		"min(key = 1)":              "only numbers",
		"min(*1)":                   "only numbers",
		"sin.name":                  "only numbers",
		strings.Repeat("1", 10_001): "limit",
	} {
		if got, err := evaluate(t.Context(), expressionArgs{expression}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, %v, want %q", expression, got, err, want)
		}
	}
}

func TestMath(t *testing.T) {
	run(t, connect(t, "math", t.TempDir()), []call{
		{tool: "evaluate", arguments: `{"expression":"2+2"}`, want: `{"result":4}`},
		{tool: "evaluate", arguments: `{"expression":"2+"}`, fails: "expression:1:3"},

		{tool: "convert_units", arguments: `{"value":42.195,"from":"km","to":"mi"}`, want: `{"result":26.2187574564543,"unit":"mi","quantity":"length"}`},
		{tool: "convert_units", arguments: `{"value":1,"from":"mile","to":"Kilometres"}`, has: []string{`"result":1.609344,`}},
		{tool: "convert_units", arguments: `{"value":32,"from":"fahrenheit","to":"°C"}`, has: []string{`"result":0,`}},
		{tool: "convert_units", arguments: `{"value":-40,"from":"C","to":"F"}`, has: []string{`"result":-40,`}},
		{tool: "convert_units", arguments: `{"value":-300,"from":"degC","to":"K"}`, fails: "absolute zero"},
		{tool: "convert_units", arguments: `{"value":1,"from":"GiB","to":"MB"}`, has: []string{`"result":1073.741824,`}},
		{tool: "convert_units", arguments: `{"value":100,"from":"km/h","to":"m/s"}`, has: []string{`"result":27.7777777777778,`}},
		{tool: "convert_units", arguments: `{"value":1,"from":"US gallon","to":"litres"}`, has: []string{`"result":3.785411784,`}},
		{tool: "convert_units", arguments: `{"value":5,"from":"feet","to":"inches"}`, has: []string{`"result":60,`}},
		{tool: "convert_units", arguments: `{"value":2,"from":"weeks","to":"days"}`, has: []string{`"result":14,`}},
		{tool: "convert_units", arguments: `{"value":10,"from":"stone","to":"lbs"}`, has: []string{`"result":140,`}},
		{tool: "convert_units", arguments: `{"value":1,"from":"km","to":"kg"}`, fails: "km is a unit of length and kg one of mass"},
		{tool: "convert_units", arguments: `{"value":1,"from":"parsec","to":"km"}`, fails: `unknown unit "parsec"`},
		{tool: "convert_units", arguments: `{"value":1e308,"from":"yr","to":"s"}`, fails: "too large"},

		{tool: "prime_factors", arguments: `{"number":360}`, want: `{"factors":[2,2,2,3,3,5],"prime":false}`},
		{tool: "prime_factors", arguments: `{"number":2}`, want: `{"factors":[2],"prime":true}`},
		{tool: "prime_factors", arguments: `{"number":1000000007}`, want: `{"factors":[1000000007],"prime":true}`},
		{tool: "prime_factors", arguments: `{"number":9007199254740991}`, want: `{"factors":[6361,69431,20394401],"prime":false}`},
		{tool: "prime_factors", arguments: `{"number":1}`, fails: "not from 2"},
		{tool: "prime_factors", arguments: `{"number":1.5}`, fails: "integer"},
	})
}
