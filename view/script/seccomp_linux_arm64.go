package script

// neverCallsHere and runtimeCallsHere are the system calls of this architecture only.
var neverCallsHere, runtimeCallsHere []uint32
