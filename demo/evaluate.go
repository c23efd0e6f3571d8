package demo

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// evaluator computes an arithmetic expression by recursive descent:
//
//	sum     = product { ("+" | "-") product }
//	product = sign { ("*" | "/" | "%") sign }
//	sign    = [ "+" | "-" ] sign | power
//	power   = operand { "!" } [ "^" sign ]
//	operand = number | name | name "(" sum { "," sum } ")" | "(" sum ")"
type evaluator struct {
	text  string
	at    int // bytes read
	depth int
}

const (
	maxExpression = 10_000 // bytes
	maxDepth      = 200
)

var constants = map[string]float64{"pi": math.Pi, "tau": 2 * math.Pi, "e": math.E}

var functions = map[string]func(float64) float64{
	"abs": math.Abs, "sqrt": math.Sqrt, "cbrt": math.Cbrt, "exp": math.Exp, "ln": math.Log, "log": math.Log10,
	"log2": math.Log2, "sin": math.Sin, "cos": math.Cos, "tan": math.Tan, "asin": math.Asin, "acos": math.Acos,
	"atan": math.Atan, "floor": math.Floor, "ceil": math.Ceil, "round": math.Round, "trunc": math.Trunc,
	"rad": func(x float64) float64 { return x * math.Pi / 180 }, "deg": func(x float64) float64 { return x * 180 / math.Pi },
}

func evaluate(text string) (float64, error) {
	if err := atMost(maxExpression, "the expression", text); err != nil {
		return 0, err
	}
	e := &evaluator{text: text}
	value, err := e.sum()
	if err != nil {
		return 0, err
	}
	if c := e.peek(); c != 0 {
		return 0, e.errorf("expected an operator, found %q", c)
	}
	return value, nil
}

func (e *evaluator) errorf(format string, args ...any) error {
	return fmt.Errorf("at character %d: %w", utf8.RuneCountInString(e.text[:e.at])+1, fmt.Errorf(format, args...))
}

// peek skips white space and returns the next character, 0 at the end.
func (e *evaluator) peek() rune {
	for e.at < len(e.text) && strings.IndexByte(" \t\r\n", e.text[e.at]) >= 0 {
		e.at++
	}
	if e.at == len(e.text) {
		return 0
	}
	c, _ := utf8.DecodeRuneInString(e.text[e.at:])
	return c
}

// take consumes the next character if it is one of these.
func (e *evaluator) take(chars string) (rune, bool) {
	c := e.peek()
	if c == 0 || !strings.ContainsRune(chars, c) {
		return 0, false
	}
	e.at += utf8.RuneLen(c)
	return c, true
}

func (e *evaluator) sum() (float64, error) {
	left, err := e.product()
	for err == nil {
		op, ok := e.take("+-−")
		if !ok {
			break
		}
		var right float64
		if right, err = e.product(); op == '+' {
			left += right
		} else {
			left -= right
		}
	}
	return e.finite(left, err)
}

func (e *evaluator) product() (float64, error) {
	left, err := e.sign()
	for err == nil {
		op, ok := e.take("*×·/÷%")
		if !ok {
			break
		}
		var right float64
		if right, err = e.sign(); err != nil {
			break
		}
		switch op {
		case '*', '×', '·':
			left *= right
		case '%':
			if right == 0 {
				return 0, e.errorf("division by zero")
			}
			left = math.Mod(left, right)
		default:
			if right == 0 {
				return 0, e.errorf("division by zero")
			}
			left /= right
		}
	}
	return e.finite(left, err)
}

func (e *evaluator) sign() (float64, error) {
	if e.depth++; e.depth > maxDepth {
		return 0, e.errorf("nested deeper than %d levels", maxDepth)
	}
	defer func() { e.depth-- }()
	switch op, _ := e.take("+-−"); op {
	case '+':
		return e.sign()
	case '-', '−':
		value, err := e.sign()
		return -value, err
	}
	return e.power()
}

func (e *evaluator) power() (float64, error) {
	base, err := e.operand()
	if err != nil {
		return 0, err
	}
	for {
		if _, ok := e.take("!"); !ok {
			break
		}
		if base < 0 || base > 170 || base != math.Trunc(base) {
			return 0, e.errorf("! needs a whole number from 0 to 170, not %g", base)
		}
		product := 1.0
		for i := 2.0; i <= base; i++ {
			product *= i
		}
		base = product
	}
	_, ok := e.take("^")
	if !ok {
		if !strings.HasPrefix(e.text[e.at:], "**") {
			return base, nil
		}
		e.at += 2
	}
	exponent, err := e.sign() // 2^-3, and 2^3^2 is 2^(3^2)
	if err != nil {
		return 0, err
	}
	if base == 0 && exponent < 0 {
		return 0, e.errorf("division by zero")
	}
	return e.finite(math.Pow(base, exponent), nil)
}

func (e *evaluator) operand() (float64, error) {
	c := e.peek()
	switch {
	case c == '(':
		e.at++
		value, err := e.sum()
		if err != nil {
			return 0, err
		}
		return value, e.expect(')')
	case c >= '0' && c <= '9' || c == '.':
		return e.number()
	case isLetter(c):
		return e.name()
	case c == 0:
		return 0, e.errorf("the expression ends where a number is expected")
	}
	return 0, e.errorf("expected a number, found %q", c)
}

func (e *evaluator) expect(want rune) error {
	if _, ok := e.take(string(want)); ok {
		return nil
	}
	if c := e.peek(); c != 0 {
		return e.errorf("expected %q, found %q", want, c)
	}
	return e.errorf("%q is missing at the end", want)
}

func (e *evaluator) number() (float64, error) {
	start := e.at
	digits := func() {
		for e.at < len(e.text) && (e.text[e.at] >= '0' && e.text[e.at] <= '9' || e.text[e.at] == '_') {
			e.at++
		}
	}
	digits()
	if e.at < len(e.text) && e.text[e.at] == '.' {
		e.at++
		digits()
	}
	if rest := e.text[e.at:]; len(rest) > 1 && (rest[0] == 'e' || rest[0] == 'E') {
		n := 1
		if rest[1] == '+' || rest[1] == '-' {
			n++
		}
		if n < len(rest) && rest[n] >= '0' && rest[n] <= '9' { // else it is the constant e
			e.at += n
			digits()
		}
	}
	literal := e.text[start:e.at]
	value, err := strconv.ParseFloat(strings.ReplaceAll(literal, "_", ""), 64)
	if err != nil {
		e.at = start
		if errors.Is(err, strconv.ErrRange) {
			return 0, e.errorf("%s is too large", literal)
		}
		return 0, e.errorf("%s is no number", literal)
	}
	return value, nil
}

func isLetter(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == 'π' }

func (e *evaluator) name() (float64, error) {
	start := e.at
	for e.at < len(e.text) {
		c, size := utf8.DecodeRuneInString(e.text[e.at:])
		if !isLetter(c) && (c < '0' || c > '9') {
			break
		}
		e.at += size
	}
	name := strings.ToLower(strings.ReplaceAll(e.text[start:e.at], "π", "pi"))
	if e.peek() != '(' {
		if value, ok := constants[name]; ok {
			return value, nil
		}
		e.at = start
		return 0, e.errorf("unknown name %q; there are pi, tau, e and functions such as sqrt(2)", name)
	}
	e.at++
	var args []float64
	for {
		value, err := e.sum()
		if err != nil {
			return 0, err
		}
		args = append(args, value)
		if _, more := e.take(","); !more {
			break
		}
	}
	if err := e.expect(')'); err != nil {
		return 0, err
	}
	return e.call(name, args)
}

func (e *evaluator) call(name string, args []float64) (float64, error) {
	switch name {
	case "min", "max":
		value := args[0]
		for _, arg := range args[1:] {
			if name == "min" {
				value = min(value, arg)
			} else {
				value = max(value, arg)
			}
		}
		return value, nil
	case "pow", "hypot", "atan2":
		if len(args) != 2 {
			return 0, e.errorf("%s takes two arguments, not %d", name, len(args))
		}
		two := map[string]func(x, y float64) float64{"pow": math.Pow, "hypot": math.Hypot, "atan2": math.Atan2}
		return e.finite(two[name](args[0], args[1]), nil)
	}
	function, ok := functions[name]
	if !ok {
		return 0, e.errorf("unknown function %q", name)
	}
	if len(args) != 1 {
		return 0, e.errorf("%s takes one argument, not %d", name, len(args))
	}
	value := function(args[0])
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, e.errorf("%s(%g) is not defined", name, args[0])
	}
	return value, nil
}

// finite makes an overflow an error where it happens.
func (e *evaluator) finite(value float64, err error) (float64, error) {
	switch {
	case err != nil:
		return 0, err
	case math.IsNaN(value):
		return 0, e.errorf("the result is not a real number")
	case math.IsInf(value, 0):
		return 0, e.errorf("the result is too large")
	}
	return value, nil
}
