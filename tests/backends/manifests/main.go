// Command manifests reads manifests as strictly as what they are for: an unknown field, a field given twice or a value
// of another type is an error. Without a network and without a cluster.
//
//	manifests k8s FILE      all documents of a file, - for standard input
//	manifests compose FILE  a Compose file, as `docker compose config` reads it
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func k8s(input io.Reader) error {
	if err := monitoring.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(input))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return fmt.Errorf("%v: %w", kind, err)
		}
		fmt.Println(kind.Kind)
	}
}

func compose(file string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithOsEnv)
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	for _, name := range project.ServiceNames() {
		fmt.Println(name)
	}
	return nil
}

func run(mode, file string) error {
	switch mode {
	case "compose":
		return compose(file)
	case "k8s":
		if file == "-" {
			return k8s(os.Stdin)
		}
		input, err := os.Open(file)
		if err != nil {
			return err
		}
		defer input.Close()
		return k8s(input)
	}
	return fmt.Errorf("no such mode: %s", mode)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: manifests k8s|compose FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
