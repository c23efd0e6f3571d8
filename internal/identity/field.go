package identity

// FieldError is a fault in one input of a person: a flag of a command, or a field of a form.
type FieldError struct {
	Field string // its name; "" if it is obvious
	Text  string // the rest of the sentence
}

func (e *FieldError) Error() string { return e.Field + e.Text }
