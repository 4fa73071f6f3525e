// Command manifests builds kustomizations and checks that each of their objects can be
// decoded: no unknown field, no missing kind. The API server checks the rest when the
// end-to-end tests install them.
package main

import (
	"fmt"
	"os"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(folders []string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme,
		apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, folder := range folders {
		objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
		if err != nil {
			return fmt.Errorf("building %s: %w", folder, err)
		}
		for _, o := range objects.Resources() {
			text, err := o.AsYAML()
			if err != nil {
				return fmt.Errorf("%s: %s: %w", folder, o.CurId(), err)
			}
			if _, _, err := decoder.Decode(text, nil, nil); err != nil {
				return fmt.Errorf("%s: %s: %w", folder, o.CurId(), err)
			}
		}
		fmt.Printf("%s: %d objects\n", folder, objects.Size())
	}
	return nil
}
