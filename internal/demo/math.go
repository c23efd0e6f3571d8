package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/server"
	starlarkmath "go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

const (
	maxExpression = 10_000    // bytes
	maxInteger    = 1<<53 - 1 // JSON implementations may round larger numbers
)

type expressionArgs struct {
	Expression string `json:"expression" jsonschema:"Expression in Python's syntax such as 2 * (3 + 4) / sqrt(2): operators + - * / // %; pow(x, y); constants pi and e; functions abs sqrt exp log sin cos tan asin acos atan atan2 floor ceil round degrees radians min max hypot; angles in radians"`
}

type value struct {
	Result float64 `json:"result" jsonschema:"The value"`
}

type convertUnitsArgs struct {
	Value float64 `json:"value" jsonschema:"How much"`
	From  string  `json:"from" jsonschema:"Unit of the value such as km, lb, degF, GiB, mph, acre, h; by symbol or English name"`
	To    string  `json:"to" jsonschema:"Unit to convert to; it must measure the same quantity"`
}

type converted struct {
	Result   float64 `json:"result" jsonschema:"The value in the unit asked for"`
	Unit     string  `json:"unit" jsonschema:"Symbol of that unit"`
	Quantity string  `json:"quantity" jsonschema:"What is measured such as length"`
}

type integerArgs struct {
	Number int64 `json:"number" jsonschema:"Whole number from 2 to 9007199254740991"`
}

type primeFactors struct {
	Factors []int64 `json:"factors" jsonschema:"Prime factors in ascending order, each as often as it divides"`
	Prime   bool    `json:"prime" jsonschema:"Whether the number is a prime itself"`
}

func newMath(string) (*server.MCPServer, func() error, error) {
	s := newServer("math", "Numbers are 64-bit floating point, about 15 digits, unless a tool says otherwise.")
	add(s, "evaluate", "Calculate", "Calculates the value of an arithmetic expression.", reads, evaluate)
	add(s, "convert_units", "Convert units", "Converts a measurement between units of length (kilometres, miles, feet), mass (kilograms, pounds), "+
		"temperature (Celsius, Fahrenheit), data (bytes), speed, volume (litres, gallons), area (acres) or time.", reads, convertUnits)
	add(s, "prime_factors", "Prime factors", "Splits a whole number into its prime factors and so tells whether it is a prime.", reads, factorize)
	return s, nothingToClose, nil
}

// arithmetic has the names that an expression may use.
var arithmetic = func() starlark.StringDict {
	names := maps.Clone(starlarkmath.Module.Members)
	for _, name := range []string{"abs", "min", "max"} {
		names[name] = starlark.Universe[name]
	}
	return names
}()

func evaluate(_ context.Context, in expressionArgs) (value, error) {
	if err := atMost(maxExpression, "the expression", in.Expression); err != nil {
		return value{}, err
	}
	if strings.Contains(in.Expression, "^") || strings.Contains(in.Expression, "**") {
		return value{}, errors.New("^ and ** are not known: write pow(x, y) for x to the power of y")
	}
	var options syntax.FileOptions
	expr, err := options.ParseExpr("expression", strings.TrimSpace(in.Expression), 0)
	if err == nil {
		err = onlyArithmetic(expr)
	}
	if err != nil {
		return value{}, err
	}
	result, err := starlark.EvalExprOptions(&options, &starlark.Thread{Name: "evaluate"}, expr, arithmetic)
	if err != nil {
		return value{}, err
	}
	number, ok := starlark.AsFloat(result)
	switch {
	case !ok:
		return value{}, fmt.Errorf("%s is a %s, not a number: call it with its arguments", in.Expression, result.Type())
	case math.IsNaN(number):
		return value{}, errors.New("the result is not a real number")
	case math.IsInf(number, 0):
		return value{}, errors.New("the result is too large")
	}
	return value{number}, nil
}

// onlyArithmetic refuses everything except arithmetic, so that the cost of an expression grows only with its length.
func onlyArithmetic(expr syntax.Expr) (wrong error) {
	operators := []syntax.Token{syntax.PLUS, syntax.MINUS, syntax.STAR, syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT}
	syntax.Walk(expr, func(n syntax.Node) bool {
		allowed := true
		switch n := n.(type) {
		case *syntax.Ident:
			if _, known := arithmetic[n.Name]; !known {
				wrong = fmt.Errorf("unknown name %q; there are %s", n.Name, strings.Join(arithmetic.Keys(), ", "))
			}
		case *syntax.Literal:
			allowed = n.Token == syntax.INT || n.Token == syntax.FLOAT
		case *syntax.BinaryExpr:
			allowed = slices.Contains(operators, n.Op)
		case *syntax.UnaryExpr:
			allowed = n.Op == syntax.PLUS || n.Op == syntax.MINUS
		case nil, *syntax.CallExpr, *syntax.ParenExpr:
		default:
			allowed = false
		}
		if !allowed && wrong == nil {
			at, _ := n.Span()
			wrong = fmt.Errorf("at character %d: only numbers, + - * / // %% and functions are known", at.Col)
		}
		return wrong == nil
	})
	return wrong
}

func factorize(ctx context.Context, in integerArgs) (primeFactors, error) {
	n := in.Number
	if n < 2 || n > maxInteger {
		return primeFactors{}, fmt.Errorf("%d is not from 2 to %d", n, maxInteger)
	}
	out := primeFactors{Factors: []int64{}}
	for d := int64(2); d*d <= n; d += 1 + d&1 { // 2, 3, 5, 7, ...
		for n%d == 0 {
			out.Factors = append(out.Factors, d)
			n /= d
		}
		if d&0xfffff == 1 && ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
	if n > 1 {
		out.Factors = append(out.Factors, n)
	}
	out.Prime = len(out.Factors) == 1
	return out, nil
}

// unit is a unit of measurement. In the quantity's base unit, a value is value*factor + zero.
type unit struct {
	quantity     string
	factor, zero float64
	names        string // separated by spaces, symbol first; _ stands for a space
}

// The factors are exact by definition. The gallon is the US gallon.
var units = []unit{
	{"length", 1, 0, "m metre meter"},
	{"length", 1000, 0, "km kilometre kilometer"},
	{"length", 0.0254, 0, "in inch inches"},
	{"length", 0.3048, 0, "ft foot feet"},
	{"length", 0.9144, 0, "yd yard"},
	{"length", 1609.344, 0, "mi mile"},

	{"mass", 1, 0, "kg kilogram kilo"},
	{"mass", 0.028349523125, 0, "oz ounce"},
	{"mass", 0.45359237, 0, "lb lbs pound"},
	{"mass", 6.35029318, 0, "st stone"},

	{"temperature", 1, 0, "K kelvin"},
	{"temperature", 1, 273.15, "degC C °C celsius centigrade"},
	{"temperature", 5.0 / 9, 459.67 * 5 / 9, "degF F °F fahrenheit"},

	{"data", 8, 0, "B byte"},
	{"data", 1, 0, "bit"},
	{"data", 8e6, 0, "MB megabyte"},
	{"data", 8 << 30, 0, "GiB gibibyte"},

	{"speed", 1, 0, "m/s metre_per_second meter_per_second"},
	{"speed", 1 / 3.6, 0, "km/h kph kilometre_per_hour kilometer_per_hour"},
	{"speed", 0.44704, 0, "mph mile_per_hour miles_per_hour"},

	{"volume", 1, 0, "l litre liter"},
	{"volume", 3.785411784, 0, "gal gallon us_gallon"},

	{"area", 1, 0, "m2 square_metre square_meter"},
	{"area", 4046.8564224, 0, "acre"},

	{"time", 1, 0, "s second"},
	{"time", 60, 0, "min minute"},
	{"time", 3600, 0, "h hour"},
	{"time", 86400, 0, "d day"},
	{"time", 604800, 0, "wk week"},
	{"time", 31557600, 0, "yr year"},
}

func (u unit) symbol() string { return strings.Fields(u.names)[0] }

// findUnit finds a unit by one of its names. Upper case and a plural s are accepted.
func findUnit(name string) (unit, error) {
	spelled := strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
	for _, u := range units {
		for _, n := range strings.Fields(u.names) {
			if strings.EqualFold(n, spelled) || len(n) > 2 && strings.EqualFold(n+"s", spelled) {
				return u, nil
			}
		}
	}
	var symbols []string
	for _, u := range units {
		symbols = append(symbols, u.symbol())
	}
	return unit{}, fmt.Errorf("unknown unit %q; there are %s", name, strings.Join(symbols, ", "))
}

func convertUnits(_ context.Context, in convertUnitsArgs) (converted, error) {
	from, err := findUnit(in.From)
	if err != nil {
		return converted{}, err
	}
	to, err := findUnit(in.To)
	if err != nil {
		return converted{}, err
	}
	if from.quantity != to.quantity {
		return converted{}, fmt.Errorf("%s is a unit of %s and %s one of %s", from.symbol(), from.quantity, to.symbol(), to.quantity)
	}
	base := in.Value*from.factor + from.zero
	if from.quantity == "temperature" && base < -1e-9 {
		return converted{}, fmt.Errorf("%g %s is below absolute zero", in.Value, from.symbol())
	}
	result := (base - to.zero) / to.factor
	if math.IsInf(result, 0) || math.IsNaN(result) {
		return converted{}, errors.New("the result is too large")
	}
	if from.quantity == "temperature" {
		result = math.Round(result*1e9) / 1e9 // without it, 32 degF is 5.7e-14 degC
	}
	// The last two of 17 digits are rounding errors.
	result, err = strconv.ParseFloat(strconv.FormatFloat(result, 'g', 15, 64), 64)
	return converted{result, to.symbol(), to.quantity}, err
}
