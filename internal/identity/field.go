package identity

// FieldError is what is wrong with one thing that somebody has filled in: a flag of a
// command, a field of a form.
type FieldError struct {
	Field string // its name; "" where it is clear
	Text  string // what follows the name
}

func (e *FieldError) Error() string { return e.Field + e.Text }
