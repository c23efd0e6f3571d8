package upstream

// event is something that happens again and again. The lock of its owner guards it.
type event struct{ c chan struct{} }

// next returns a channel that is closed when the event happens the next time.
func (e *event) next() <-chan struct{} {
	if e.c == nil {
		e.c = make(chan struct{})
	}
	return e.c
}

func (e *event) happen() {
	if e.c != nil {
		close(e.c)
		e.c = nil
	}
}

// wake leaves a signal in a channel that holds one signal. A nil channel takes none.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drainSignal takes the signal out of a channel, and reports whether there was one.
func drainSignal(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
