# The two main commands are make demo and make test. Both install what they need.
SHELL := /bin/bash
# Without cgo the network resolver and the user lookup are Go's: binaries are static, and Kubernetes' packages are
# compiled once for tests, images and the lab. (runc needs cgo and is built by the lab itself. -race needs cgo, too.)
export CGO_ENABLED ?= 0
VERSION ?= v0.1.0
KUBERNETES := $(shell awk '$$1=="k8s.io/kubernetes" {print $$2; exit}' go.mod)
# aware-central is a kube-scheduler, so it names both versions. The other programs name AWARE's only.
LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(VERSION)
# Without gRPC's traces the linker can leave out what nobody calls: the agent's binary is a fifth smaller.
AGENT_TAGS := grpcnotrace
CENTRAL_LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)-aware.$(VERSION)

ifeq ($(shell command -v go),)
$(error go is missing: install Go 1.26 or newer, https://go.dev/dl, and put it on the PATH)
endif

.PHONY: help demo test unit vm node api node-api e2e e2e2 fault node-faults soak fuzz race build images cluster verify generate bench-agent bench-real bench-spikes bench-foreign bench-link bench-sim bench-learner margins start learn baselines anchors clean
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

demo: ## a real cluster, a bursty load, static against HPA+VPA against AWARE (KEEP=1 keeps the cluster)
	go run ./test/demo $(if $(KEEP),--keep)

# The emulated machine keeps one core busy, and the API's tests wait most of the time: together they take as long as one.
test: unit ## all tests, on a real cluster that is built if need be
	@$(MAKE) --no-print-directory -j2 vm node-api
	@$(MAKE) --no-print-directory e2e
	@go run ./test/cluster check-clean labtest api e2e

# One after the other, also when make runs several at once.
node-api: node
	@$(MAKE) --no-print-directory api

unit: ## the tests that need no cluster
	PATH="$$(hack/influxd):$$(hack/prometheus/build):$$PATH" go test -timeout 30m $$(go list ./... | grep -vE '/test/(cluster|machine|vm|api|e2e|fault/lab)')

vm: ## the node's tests on cgroup v2, in a virtual machine
	go test -count=1 -timeout 30m -v ./test/machine/... ./test/vm/...

cluster: ## the lab's binaries, into the cache
	go run ./test/cluster build

node: cluster ## the lab itself
	go test -count=1 -timeout 15m -skip TestTwoNodesReachEachOther ./test/cluster/...

api: cluster ## the controllers against a real API server
	go test -count=1 -timeout 15m ./test/api/...

e2e: cluster ## everything together
	go test -count=1 -timeout 25m -v ./test/e2e/...

e2e2: cluster ## end to end again, with the workload on a second node: cgroup v2 and systemd, in a virtual machine
	go test -count=1 -timeout 15m -v -run TestTwoNodesReachEachOther ./test/cluster/lab
	go test -count=1 -timeout 25m -v ./test/e2e/... -args -second
	@go run ./test/cluster check-clean two

# The faults' tests outside of test/fault: those of one package each, which need its inside.
FAULTS := ./nodeagent/... ./plugins/... ./cmd/aware-agent/... ./cmd/aware-central/...
# What differs between kinds of nodes. The rest of e2e runs on the first one.
ON_SECOND := ^TestFault|^Test01d|^Test02|^Test07
fault: cluster vm api node-faults ## every fault: hostile pods and nodes, outages, late calls; on fixtures and on the lab
	PATH="$$(hack/prometheus/build):$$PATH" go test -count=1 -timeout 45m ./test/fault/... $(FAULTS)
	@go run ./test/cluster check-clean api fault two

node-faults: cluster ## the node of an installed AWARE is broken: its runtime, kubelet, agent; on this host, and on a second node with cgroup v2
	go test -count=1 -timeout 40m -v ./test/e2e/... -args -faults
	go test -count=1 -timeout 60m -v -run '$(ON_SECOND)' ./test/e2e/... -args -faults -second

SOAK ?= 10m
SEED ?= 1
soak: ## ten minutes of random faults on a node in virtual time, on cgroup v1 and v2 (SEED=n, SOAK=30m)
	SOAK=$(SOAK) SEED=$(SEED) go test -count=1 -timeout 24h -v -run TestRandomFaultsEndWithLegalLimits ./test/fault

FUZZTIME ?= 10m
fuzz: ## fuzzers of what others send: reports, grants, metrics, annotations, reviews, lessons; FUZZTIME each
	go test -run '^$$' -fuzz FuzzReportFromWire -fuzztime $(FUZZTIME) ./nodeagent/api
	go test -run '^$$' -fuzz FuzzGrantsFromWire -fuzztime $(FUZZTIME) ./nodeagent/api
	go test -run '^$$' -fuzz FuzzOf -fuzztime $(FUZZTIME) ./nodeagent/envelope
	go test -run '^$$' -fuzz FuzzHistogram -fuzztime $(FUZZTIME) ./nodeagent/agent
	go test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./plugins/autoscaling/optin
	go test -run '^$$' -fuzz FuzzReview -fuzztime $(FUZZTIME) ./plugins/autoscaling/admission
	go test -run '^$$' -fuzz FuzzDecode -fuzztime $(FUZZTIME) ./learner/train/lesson

race: ## the concurrent parts under the race detector
	CGO_ENABLED=1 go test -race -short ./learner/... ./nodeagent/... ./plugins/fleet/... ./plugins/autoscaling/admission ./cmd/web/... ./cmd/aware/live/... ./test/apps/load/...

build: ## the three binaries, into bin/
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/aware
	go build -tags '$(AGENT_TAGS)' -ldflags '$(LDFLAGS)' -o bin/ ./cmd/aware-agent
	go build -ldflags '$(CENTRAL_LDFLAGS)' -o bin/ ./cmd/aware-central
	ln -sf aware bin/kubectl-aware

REGISTRY ?=
PLATFORMS ?= linux/$(shell go env GOARCH)
images: ## build the images, push them to REGISTRY, write out/install for kubectl apply -k (PLATFORMS=linux/amd64,linux/arm64)
	go run ./hack/images --registry '$(REGISTRY)' --platforms '$(PLATFORMS)' --ldflags 'aware-agent=$(LDFLAGS)' \
	  --ldflags 'aware-central=$(CENTRAL_LDFLAGS)' --tags 'aware-agent=$(AGENT_TAGS)' $(IMAGES_FLAGS)

bench-agent: ## what the node agent costs; the last line is JSON
	go run ./test/perf/agent

bench-link: ## what 5,000 nodes cost central; the last line is JSON
	go run ./test/perf/link

bench-real: ## the demo's load against real pods, sized by every way there is; four and a half hours, 100 minutes of them to learn
	go run ./test/demo --out out/bench-real --name real --runs static,hpa-vpa,hpa-vpa-30s,k8s-cpu-fast,aware,aware-demand,aware-learned,static-at-mean,static-at-learned

bench-spikes: ## real pods with a second of three to five times the load in each 20; 15 minutes
	go run ./test/demo --out out/bench-spikes --name spikes --trace pulses --time-scale 1 --neighbour without --seeds 1 --runs static,hpa-vpa,aware-demand

bench-foreign: ## programs nobody here wrote, left alone and with AWARE; an hour; the last line is JSON
	go run ./test/perf/foreign

bench-sim: ## the simulated world: steps a second, memory, the fluid fidelity against requests; the last line is JSON
	go run ./test/perf/sim

MARGINS = learner/bench/margins.json
margins: ## learn the margins that ship: of all services of the three applications, and one for all others; an hour
	for app in hotel-reservation social-network train-ticket; do \
		go run ./cmd/aware train margins --app $$app --worlds 4 --rounds 12 --into $(MARGINS) || exit 1; done
	go run ./cmd/aware train common-margin --apps 800 --into $(MARGINS)

START = cmd/aware-central/start.safetensors
start: ## what the lessons of central begin with, which ships: a policy and its meta-learner; a quarter of an hour
	go run ./cmd/aware train meta --central --apps 200 --rounds 1200 --out $(START)
	go run ./cmd/aware train prove --workloads 200 $(START)

bench-learner: ## updates through gorgonia against hand-written ones, decisions, many agents; the last line is JSON
	go run ./test/perf/learner

learn: ## do the learners learn? every gate on three seeds, with a table; about ten minutes
	go run ./test/learn

baselines: ## every tuned baseline in the twelve cells, with a report in out/anchors
	go run ./cmd/aware bench baselines

anchors: baselines ## the former name of baselines

generate: ## the CRD, deepcopy functions and protobuf code
	hack/generate

verify: ## generated code, format, vet, staticcheck, go.mod; then the tree must be clean
	hack/verify

clean:
	rm -rf bin out
