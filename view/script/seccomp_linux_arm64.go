package script

// neverCallsHere and runtimeCallsHere are the system calls of this architecture
// alone.
var neverCallsHere, runtimeCallsHere []uint32
