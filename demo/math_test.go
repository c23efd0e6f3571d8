package demo

import (
	"math"
	"strings"
	"testing"
)

func TestEvaluate(t *testing.T) {
	for expression, want := range map[string]float64{
		"1":                        1,
		" 1 + 2 * 3 ":              7,
		"(1+2)*3":                  9,
		"7 - 2 - 1":                4,
		"8 / 4 / 2":                1,
		"2 × 3 ÷ 4":                1.5,
		"-7 % 3":                   -1,
		"2^3^2":                    512,
		"2**3":                     8,
		"-2^2":                     -4,
		"2^-1":                     0.5,
		"--3":                      3,
		"5!":                       120,
		"3!!":                      720,
		"2*-3":                     -6,
		"1_000.5":                  1000.5,
		".5 + 5.":                  5.5,
		"1e3 + 1E-1":               1000.1,
		"2e":                       math.NaN(),
		"sqrt(16) + abs(-1)":       5,
		"SIN(pi/2)":                1,
		"ln(e)":                    1,
		"log(1000) + log2(8)":      6,
		"min(3, 1, 2) + max(1, 2)": 3,
		"pow(2, 10)":               1024,
		"hypot(3,4)":               5,
		"round(2.5) + floor(-0.5)": 2,
		"deg(π)":                   180,
		"2 * (3 + 4)^2 / sqrt(4)":  49,
		strings.Repeat("(", 90) + "1" + strings.Repeat(")", 90): 1,
	} {
		got, err := evaluate(expression)
		if math.IsNaN(want) {
			if err == nil {
				t.Errorf("%s: got %v, want an error", expression, got)
			}
			continue
		}
		if err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: got %v, %v, want %v", expression, got, err, want)
		}
	}
}

func TestEvaluateSaysWhatIsWrong(t *testing.T) {
	for expression, want := range map[string]string{
		"":                          "at character 1: the expression ends where a number is expected",
		"1 +":                       "at character 4: the expression ends",
		"1 + * 2":                   `at character 5: expected a number, found '*'`,
		"2 3":                       `at character 3: expected an operator, found '3'`,
		"(1 + 2":                    `')' is missing at the end`,
		"1)":                        `expected an operator, found ')'`,
		"min(1; 2)":                 `at character 6: expected ')', found ';'`,
		"1 / (2 - 2)":               "division by zero",
		"5 % 0":                     "division by zero",
		"0^-1":                      "division by zero",
		"sqrt(-1)":                  "sqrt(-1) is not defined",
		"(-8)^0.5":                  "not a real number",
		"ln(0)":                     "not defined",
		"2.5!":                      "whole number",
		"171!":                      "whole number",
		"9^9^9":                     "too large",
		"1e999":                     "1e999 is too large",
		"1.2.3":                     "expected an operator",
		".":                         "is no number",
		"x + 1":                     `unknown name "x"`,
		"foo(1)":                    `unknown function "foo"`,
		"sin(1, 2)":                 "takes one argument, not 2",
		"pow(2)":                    "takes two arguments, not 1",
		"sin":                       `unknown name "sin"`,
		"1 + ä":                     "at character 5",
		"×":                         `found '×'`,
		"os.Exit(1)":                "unknown name",
		"1e308 * 10":                "too large",
		"1e308 + 1e308":             "too large",
		strings.Repeat("(", 5000):   "nested deeper",
		strings.Repeat("-", 5000):   "nested deeper",
		strings.Repeat("2^", 4000):  "nested deeper",
		strings.Repeat("1", 10_001): "limit",
	} {
		if got, err := evaluate(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, %v, want %q", expression, got, err, want)
		}
	}
}

func TestMath(t *testing.T) {
	run(t, connect(t, "math", t.TempDir()), []call{
		{tool: "evaluate", arguments: `{"expression":"2+2"}`, want: `{"result":4}`},
		{tool: "evaluate", arguments: `{"expression":"2+"}`, fails: "at character 3"},

		{tool: "convert_units", arguments: `{"value":42.195,"from":"km","to":"mi"}`, want: `{"result":26.2187574564543,"unit":"mi","quantity":"length"}`},
		{tool: "convert_units", arguments: `{"value":1,"from":"mile","to":"Kilometres"}`, has: []string{`"result":1.609344,`}},
		{tool: "convert_units", arguments: `{"value":32,"from":"fahrenheit","to":"°C"}`, has: []string{`"result":0,`}},
		{tool: "convert_units", arguments: `{"value":-40,"from":"C","to":"F"}`, has: []string{`"result":-40,`}},
		{tool: "convert_units", arguments: `{"value":-300,"from":"degC","to":"K"}`, fails: "absolute zero"},
		{tool: "convert_units", arguments: `{"value":1,"from":"GiB","to":"MB"}`, has: []string{`"result":1073.741824,`}},
		{tool: "convert_units", arguments: `{"value":8,"from":"Mbit","to":"MB"}`, has: []string{`"result":1,`}},
		{tool: "convert_units", arguments: `{"value":100,"from":"km/h","to":"m/s"}`, has: []string{`"result":27.7777777777778,`}},
		{tool: "convert_units", arguments: `{"value":1,"from":"US gallon","to":"litres"}`, has: []string{`"result":3.785411784,`}},
		{tool: "convert_units", arguments: `{"value":1,"from":"square mile","to":"acres"}`, has: []string{`"result":640,`}},
		{tool: "convert_units", arguments: `{"value":5,"from":"feet","to":"inches"}`, has: []string{`"result":60,`}},
		{tool: "convert_units", arguments: `{"value":2,"from":"weeks","to":"days"}`, has: []string{`"result":14,`}},
		{tool: "convert_units", arguments: `{"value":10,"from":"stone","to":"lbs"}`, has: []string{`"result":140,`}},
		{tool: "convert_units", arguments: `{"value":1,"from":"km","to":"kg"}`, fails: "km is a unit of length and kg one of mass"},
		{tool: "convert_units", arguments: `{"value":1,"from":"parsec","to":"km"}`, fails: `unknown unit "parsec"`},
		{tool: "convert_units", arguments: `{"value":1e308,"from":"ly","to":"nm"}`, fails: "too large"},
		{tool: "list_units", arguments: `{"quantity":"temperature"}`, has: []string{`{"symbol":"K","names":["kelvin"],"quantity":"temperature"}`, `degF`}},
		{tool: "list_units", arguments: `{"quantity":"beauty"}`, fails: "length"},

		{tool: "statistics", arguments: `{"numbers":[2,4,4,4,5,5,7,9]}`,
			has: []string{`"count":8,"sum":40,"mean":5,"median":4.5,"min":2,"max":9,"standard_deviation":2,"sample_standard_deviation":2.138`}},
		{tool: "statistics", arguments: `{"numbers":[3]}`, has: []string{`"median":3`, `"sample_standard_deviation":0`}},
		{tool: "statistics", arguments: `{"numbers":[]}`, fails: "give 1 to"},
		{tool: "statistics", arguments: `{"numbers":[1e308,1e308]}`, fails: "too large"},

		{tool: "prime_factors", arguments: `{"number":360}`, want: `{"factors":[2,2,2,3,3,5],"prime":false}`},
		{tool: "prime_factors", arguments: `{"number":2}`, want: `{"factors":[2],"prime":true}`},
		{tool: "prime_factors", arguments: `{"number":1000000007}`, want: `{"factors":[1000000007],"prime":true}`},
		{tool: "prime_factors", arguments: `{"number":9007199254740991}`, want: `{"factors":[6361,69431,20394401],"prime":false}`},
		{tool: "prime_factors", arguments: `{"number":1}`, fails: "not from 2"},
		{tool: "prime_factors", arguments: `{"number":1.5}`, fails: "integer"},

		{tool: "gcd_lcm", arguments: `{"numbers":[12,-18,30]}`, want: `{"gcd":6,"lcm":"180"}`},
		{tool: "gcd_lcm", arguments: `{"numbers":[9007199254740991,9007199254740990]}`, want: `{"gcd":1,"lcm":"81129638414606654674191240921090"}`},
		{tool: "gcd_lcm", arguments: `{"numbers":[5]}`, fails: "give 2 to 100"},
		{tool: "gcd_lcm", arguments: `{"numbers":[5,0]}`, fails: "other than 0"},

		{tool: "convert_base", arguments: `{"number":"ff","from":16,"to":2}`, want: `{"digits":"11111111"}`},
		{tool: "convert_base", arguments: `{"number":"-255","from":10,"to":36}`, want: `{"digits":"-73"}`},
		{tool: "convert_base", arguments: `{"number":"12","from":2,"to":10}`, fails: "no whole number in base 2"},
		{tool: "convert_base", arguments: `{"number":"1","from":1,"to":10}`, fails: "base 1 is not"},

		{tool: "random_integers", arguments: `{"min":6,"max":6,"count":3}`, want: `{"numbers":[6,6,6]}`},
		{tool: "random_integers", arguments: `{"min":7,"max":6}`, fails: "no range"},
		{tool: "random_integers", arguments: `{"min":1,"max":6,"count":1001}`, fails: "from 1 to 1000"},
	})
}

func TestRandomIntegersStayInRangeAndReachItsEnds(t *testing.T) {
	out, err := randomIntegers(t.Context(), randomArgs{Min: -1, Max: 1, Count: 1000})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for _, n := range out.Numbers {
		seen[n] = true
	}
	if len(seen) != 3 || !seen[-1] || !seen[0] || !seen[1] {
		t.Errorf("1,000 draws from -1 to 1 gave %v", seen)
	}
}
