// Package wire is what the host and the init of a virtual machine say to each other:
// the host leaves a Plan in the machine's image, and init writes one Event a line to
// the second serial port. The first has the kernel's messages, which would fall between.
package wire

// PlanFile is where the plan is in the image. A program's file is ProgramDir/NAME, and
// its working directory is WorkDir/NAME.
const (
	PlanFile   = "/plan.json"
	ProgramDir = "/programs"
	WorkDir    = "/work"
	Port       = "/dev/ttyS1" // of the events
)

// Plan is what init runs, one program after the other.
type Plan struct{ Programs []Program }

// Program is a static binary of the image.
type Program struct {
	Name string
	Args []string
}

// Event is one line. It is about a program, or says that all is done, or why it cannot be.
type Event struct {
	Program string   `json:",omitempty"`
	Output  []byte   `json:",omitempty"` // standard output and standard error, as they come
	Exit    *Exit    `json:",omitempty"` // the program ended
	Left    []string `json:",omitempty"` // with Exit: control groups that it made and did not remove
	Done    bool     `json:",omitempty"` // the last event
	Problem string   `json:",omitempty"` // init itself failed
}

// Exit is how a program ended.
type Exit struct {
	Code    int    // -1 when a signal ended it, or when it did not start
	Reason  string // "exit status 1", "signal: killed", or why it did not start
	Seconds float64
}
