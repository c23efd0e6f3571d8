package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/server"
)

const (
	maxNumbers = 100_000
	maxInteger = 1<<53 - 1 // every JSON implementation reads it exactly
)

type expressionArgs struct {
	Expression string `json:"expression" jsonschema:"Expression such as 2 * (3 + 4)^2 / sqrt(2): operators + - * / % ^ and !; constants pi e tau; functions abs sqrt cbrt exp ln log log2 sin cos tan asin acos atan atan2 floor ceil round trunc rad deg min max pow hypot; angles in radians"`
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

type listUnitsArgs struct {
	Quantity string `json:"quantity,omitempty" jsonschema:"Only units of this quantity,enum=length,enum=mass,enum=temperature,enum=data,enum=speed,enum=volume,enum=area,enum=time"`
}

type unitInfo struct {
	Symbol   string   `json:"symbol" jsonschema:"How to write it"`
	Names    []string `json:"names" jsonschema:"Other ways to write it"`
	Quantity string   `json:"quantity" jsonschema:"What it measures"`
}

type unitList struct {
	Units []unitInfo `json:"units" jsonschema:"The units known"`
}

type numbersArgs struct {
	Numbers []float64 `json:"numbers" jsonschema:"The numbers, 1 to 100000 of them"`
}

type statistics struct {
	Count  int     `json:"count" jsonschema:"How many numbers"`
	Sum    float64 `json:"sum" jsonschema:"Their sum"`
	Mean   float64 `json:"mean" jsonschema:"Arithmetic mean"`
	Median float64 `json:"median" jsonschema:"Middle value"`
	Min    float64 `json:"min" jsonschema:"Smallest"`
	Max    float64 `json:"max" jsonschema:"Largest"`
	StdDev float64 `json:"standard_deviation" jsonschema:"Standard deviation of the numbers as the whole population"`
	Sample float64 `json:"sample_standard_deviation" jsonschema:"Standard deviation of the numbers as a sample; 0 for one number"`
}

type integerArgs struct {
	Number int64 `json:"number" jsonschema:"Whole number from 2 to 9007199254740991"`
}

type primeFactors struct {
	Factors []int64 `json:"factors" jsonschema:"Prime factors in ascending order, each as often as it divides"`
	Prime   bool    `json:"prime" jsonschema:"Whether the number is a prime itself"`
}

type integersArgs struct {
	Numbers []int64 `json:"numbers" jsonschema:"Two to 100 whole numbers other than 0"`
}

type divisors struct {
	GCD int64  `json:"gcd" jsonschema:"Greatest common divisor"`
	LCM string `json:"lcm" jsonschema:"Least common multiple; decimal digits because it may be large"`
}

type baseArgs struct {
	Number string `json:"number" jsonschema:"Whole number in the base it is written in such as ff or -1010; up to 1000 digits"`
	From   int    `json:"from" jsonschema:"Base it is written in, 2 to 36"`
	To     int    `json:"to" jsonschema:"Base to write it in, 2 to 36"`
}

type digits struct {
	Digits string `json:"digits" jsonschema:"The number in the base asked for; small letters are digits from 10 on"`
}

type randomArgs struct {
	Min   int64 `json:"min" jsonschema:"Smallest number that may come"`
	Max   int64 `json:"max" jsonschema:"Largest number that may come"`
	Count int   `json:"count,omitempty" jsonschema:"How many, 1 to 1000 (default 1)"`
}

type integers struct {
	Numbers []int64 `json:"numbers" jsonschema:"The numbers drawn"`
}

func newMath(string) (*server.MCPServer, func() error, error) {
	s := newServer("math", "Numbers are 64-bit floating point, about 15 digits, unless a tool says otherwise.")
	add(s, "evaluate", "Calculate", "Calculates the value of an arithmetic expression.", reads, evaluateTool)
	add(s, "convert_units", "Convert units", "Converts a measurement between units of length (kilometres, miles, feet), mass (kilograms, pounds), "+
		"temperature (Celsius, Fahrenheit), data (bytes), speed, volume (litres, gallons), area (acres) or time.", reads, convertUnits)
	add(s, "list_units", "List units", "Lists the units of measurement that convert_units knows, with the names they go by.", reads, listUnits)
	add(s, "statistics", "Statistics", "Describes a list of numbers: sum, mean, median, smallest, largest and standard deviation.", reads, describeNumbers)
	add(s, "prime_factors", "Prime factors", "Splits a whole number into its prime factors and so tells whether it is a prime.", reads, factorize)
	add(s, "gcd_lcm", "Common divisor and multiple", "Finds the greatest common divisor and the least common multiple of whole numbers.", reads, gcdLCM)
	add(s, "convert_base", "Convert number base", "Writes a whole number in another base: binary, octal, decimal, hexadecimal, any from 2 to 36.", reads, convertBase)
	add(s, "random_integers", "Random numbers", "Draws random whole numbers from a range, such as dice. Not for secrets.", draws, randomIntegers)
	return s, nothingToClose, nil
}

func evaluateTool(_ context.Context, in expressionArgs) (value, error) {
	result, err := evaluate(in.Expression)
	return value{result}, err
}

func describeNumbers(_ context.Context, in numbersArgs) (statistics, error) {
	n := len(in.Numbers)
	if n == 0 || n > maxNumbers {
		return statistics{}, fmt.Errorf("there are %d numbers; give 1 to %d", n, maxNumbers)
	}
	sorted := slices.Sorted(slices.Values(in.Numbers))
	out := statistics{Count: n, Min: sorted[0], Max: sorted[n-1], Median: sorted[n/2]}
	if n%2 == 0 {
		out.Median = sorted[n/2-1]/2 + sorted[n/2]/2
	}
	for _, x := range sorted {
		out.Sum += x
	}
	out.Mean = out.Sum / float64(n)
	var squares float64
	for _, x := range sorted {
		squares += (x - out.Mean) * (x - out.Mean)
	}
	out.StdDev = math.Sqrt(squares / float64(n))
	if n > 1 {
		out.Sample = math.Sqrt(squares / float64(n-1))
	}
	if math.IsInf(out.Sum, 0) || math.IsInf(squares, 0) {
		return statistics{}, errors.New("the numbers are too large to add up")
	}
	return out, nil
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

func gcdLCM(_ context.Context, in integersArgs) (divisors, error) {
	if len(in.Numbers) < 2 || len(in.Numbers) > 100 {
		return divisors{}, fmt.Errorf("there are %d numbers; give 2 to 100", len(in.Numbers))
	}
	gcd, lcm := new(big.Int), big.NewInt(1)
	for _, n := range in.Numbers {
		if n == 0 || n < -maxInteger || n > maxInteger {
			return divisors{}, fmt.Errorf("%d: the numbers must be other than 0 and at most %d", n, maxInteger)
		}
		b := new(big.Int).Abs(big.NewInt(n))
		gcd.GCD(nil, nil, gcd, b)
		lcm.Mul(lcm, new(big.Int).Div(b, new(big.Int).GCD(nil, nil, lcm, b)))
	}
	return divisors{gcd.Int64(), lcm.String()}, nil
}

func convertBase(_ context.Context, in baseArgs) (digits, error) {
	for _, base := range []int{in.From, in.To} {
		if base < 2 || base > 36 {
			return digits{}, fmt.Errorf("base %d is not from 2 to 36", base)
		}
	}
	if err := atMost(1000, "the number", in.Number); err != nil {
		return digits{}, err
	}
	n, ok := new(big.Int).SetString(strings.TrimSpace(in.Number), in.From)
	if !ok {
		return digits{}, fmt.Errorf("%q is no whole number in base %d", in.Number, in.From)
	}
	return digits{n.Text(in.To)}, nil
}

func randomIntegers(_ context.Context, in randomArgs) (integers, error) {
	count, err := within("count", in.Count, 1, 1000)
	if err != nil {
		return integers{}, err
	}
	if in.Min > in.Max || in.Min < -maxInteger || in.Max > maxInteger {
		return integers{}, fmt.Errorf("from %d to %d is no range of whole numbers within plus and minus %d", in.Min, in.Max, maxInteger)
	}
	out := integers{make([]int64, count)}
	for i := range out.Numbers {
		out.Numbers[i] = in.Min + rand.Int64N(in.Max-in.Min+1)
	}
	return out, nil
}

// unit is a multiple of its quantity's base unit, counted from zero.
type unit struct {
	quantity, symbol, names string // names are parted by spaces, _ stands for one
	factor, zero            float64
}

// The factors are exact by definition; volumes are US customary unless named imperial.
var units = []unit{
	{"length", "m", "metre meter", 1, 0},
	{"length", "km", "kilometre kilometer", 1000, 0},
	{"length", "cm", "centimetre centimeter", 0.01, 0},
	{"length", "mm", "millimetre millimeter", 0.001, 0},
	{"length", "um", "µm micrometre micrometer micron", 1e-6, 0},
	{"length", "nm", "nanometre nanometer", 1e-9, 0},
	{"length", "in", "inch inches", 0.0254, 0},
	{"length", "ft", "foot feet", 0.3048, 0},
	{"length", "yd", "yard", 0.9144, 0},
	{"length", "mi", "mile", 1609.344, 0},
	{"length", "nmi", "nautical_mile", 1852, 0},
	{"length", "au", "astronomical_unit", 149597870700, 0},
	{"length", "ly", "light_year", 9460730472580800, 0},

	{"mass", "kg", "kilogram kilo", 1, 0},
	{"mass", "g", "gram", 0.001, 0},
	{"mass", "mg", "milligram", 1e-6, 0},
	{"mass", "t", "tonne metric_ton", 1000, 0},
	{"mass", "oz", "ounce", 0.028349523125, 0},
	{"mass", "lb", "lbs pound", 0.45359237, 0},
	{"mass", "st", "stone", 6.35029318, 0},

	{"temperature", "K", "kelvin", 1, 0},
	{"temperature", "degC", "C °C celsius centigrade", 1, 273.15},
	{"temperature", "degF", "F °F fahrenheit", 5.0 / 9, 459.67 * 5 / 9},

	{"data", "B", "byte", 8, 0},
	{"data", "bit", "b", 1, 0},
	{"data", "kbit", "kilobit", 1e3, 0},
	{"data", "Mbit", "megabit", 1e6, 0},
	{"data", "Gbit", "gigabit", 1e9, 0},
	{"data", "kB", "KB kilobyte", 8e3, 0},
	{"data", "MB", "megabyte", 8e6, 0},
	{"data", "GB", "gigabyte", 8e9, 0},
	{"data", "TB", "terabyte", 8e12, 0},
	{"data", "PB", "petabyte", 8e15, 0},
	{"data", "KiB", "kibibyte", 8 << 10, 0},
	{"data", "MiB", "mebibyte", 8 << 20, 0},
	{"data", "GiB", "gibibyte", 8 << 30, 0},
	{"data", "TiB", "tebibyte", 8 << 40, 0},

	{"speed", "m/s", "mps metre_per_second meter_per_second metres_per_second meters_per_second", 1, 0},
	{"speed", "km/h", "kph kmh kilometre_per_hour kilometer_per_hour kilometres_per_hour kilometers_per_hour", 1 / 3.6, 0},
	{"speed", "mph", "mile_per_hour miles_per_hour", 0.44704, 0},
	{"speed", "kn", "knot", 1852.0 / 3600, 0},
	{"speed", "ft/s", "fps foot_per_second feet_per_second", 0.3048, 0},

	{"volume", "l", "L litre liter", 1, 0},
	{"volume", "ml", "mL millilitre milliliter", 0.001, 0},
	{"volume", "m3", "m³ cubic_metre cubic_meter", 1000, 0},
	{"volume", "tsp", "teaspoon", 0.00492892159375, 0},
	{"volume", "tbsp", "tablespoon", 0.01478676478125, 0},
	{"volume", "floz", "fl_oz fluid_ounce", 0.0295735295625, 0},
	{"volume", "cup", "", 0.2365882365, 0},
	{"volume", "pt", "pint", 0.473176473, 0},
	{"volume", "qt", "quart", 0.946352946, 0},
	{"volume", "gal", "gallon us_gallon", 3.785411784, 0},
	{"volume", "impgal", "imperial_gallon uk_gallon", 4.54609, 0},

	{"area", "m2", "m² square_metre square_meter", 1, 0},
	{"area", "km2", "km² square_kilometre square_kilometer", 1e6, 0},
	{"area", "cm2", "cm² square_centimetre square_centimeter", 1e-4, 0},
	{"area", "ha", "hectare", 1e4, 0},
	{"area", "acre", "", 4046.8564224, 0},
	{"area", "ft2", "ft² square_foot square_feet", 0.09290304, 0},
	{"area", "mi2", "mi² square_mile", 2589988.110336, 0},

	{"time", "s", "sec second", 1, 0},
	{"time", "ms", "millisecond", 0.001, 0},
	{"time", "us", "µs microsecond", 1e-6, 0},
	{"time", "min", "minute", 60, 0},
	{"time", "h", "hr hour", 3600, 0},
	{"time", "d", "day", 86400, 0},
	{"time", "wk", "week", 604800, 0},
	{"time", "yr", "year", 31557600, 0},
}

// findUnit looks a unit up by symbol, then by name, in singular or plural and
// any case. Symbols keep their case: a Mb is not a MB.
func findUnit(name string) (unit, error) {
	name = strings.TrimSpace(name)
	for _, u := range units {
		if u.symbol == name {
			return u, nil
		}
	}
	for _, equal := range []func(a, b string) bool{func(a, b string) bool { return a == b }, strings.EqualFold} {
		for _, spelled := range []string{name, strings.TrimSuffix(name, "s")} {
			spelled = strings.NewReplacer(" ", "_", "-", "_").Replace(spelled)
			for _, u := range units {
				if equal(u.symbol, spelled) && u.quantity != "data" || slices.ContainsFunc(strings.Fields(u.names), func(n string) bool { return equal(n, spelled) }) {
					return u, nil
				}
			}
		}
	}
	return unit{}, fmt.Errorf("unknown unit %q; list_units names those there are", name)
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
		return converted{}, fmt.Errorf("%s is a unit of %s and %s one of %s", from.symbol, from.quantity, to.symbol, to.quantity)
	}
	base := in.Value*from.factor + from.zero
	if from.quantity == "temperature" && base < -1e-9 {
		return converted{}, fmt.Errorf("%g %s is below absolute zero", in.Value, from.symbol)
	}
	result := (base - to.zero) / to.factor
	if from.quantity == "temperature" {
		result = math.Round(result*1e9) / 1e9 // the zeros leave 5.7e-14 degC of 32 degF
	}
	if math.IsInf(result, 0) || math.IsNaN(result) {
		return converted{}, errors.New("the result is too large")
	}
	return converted{tidy(result), to.symbol, to.quantity}, nil
}

// tidy drops the last two of 17 digits, which are the noise of the conversion.
func tidy(x float64) float64 {
	out, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 15, 64), 64)
	return out
}

func listUnits(_ context.Context, in listUnitsArgs) (unitList, error) {
	out := unitList{[]unitInfo{}}
	for _, u := range units {
		if in.Quantity != "" && u.quantity != in.Quantity {
			continue
		}
		names := []string{}
		for _, name := range strings.Fields(u.names) {
			names = append(names, strings.ReplaceAll(name, "_", " "))
		}
		out.Units = append(out.Units, unitInfo{u.symbol, names, u.quantity})
	}
	return out, nil
}
