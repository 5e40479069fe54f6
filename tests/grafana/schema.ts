// What Grafana publishes, as JSON has it: enumerations by their values.
import type { AnnotationQuery, Dashboard, Panel, RowPanel, VariableModel } from '@grafana/schema';
import type * as BarChart from '@grafana/schema/dist/esm/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen';
import type * as BarGauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as Stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as Table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as TimeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Json<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends Array<infer Item>
      ? Array<Json<Item>>
      : T extends object
        ? { [Key in keyof T]: Json<T[Key]> }
        : T;

// The dashboard's type says nothing of a kind of panel's own options: the kind's does.
type Kind<Type extends string, Options, Custom> = Omit<Json<Panel>, 'type' | 'options' | 'fieldConfig'> & {
  type: Type;
  options: Json<Options>;
  fieldConfig: Omit<NonNullable<Json<Panel>['fieldConfig']>, 'defaults'> & {
    defaults: Omit<NonNullable<Json<Panel>['fieldConfig']>['defaults'], 'custom'> & { custom?: Json<Custom> };
  };
};

type OurPanel =
  | Json<RowPanel>
  | Kind<'stat', Stat.Options, never>
  | Kind<'timeseries', TimeSeries.Options, Partial<TimeSeries.FieldConfig>>
  | Kind<'barchart', BarChart.Options, Partial<BarChart.FieldConfig>>
  | Kind<'bargauge', BarGauge.Options, never>
  | Kind<'table', Partial<Table.Options>, Partial<Table.FieldConfig>>;

// Of variables it knows what all kinds have; the text that Grafana shows for a query is not in it.
type OurVariable = Json<VariableModel> & { definition?: string };

// What an annotation asks is its data source's own, as are the targets of panels.
type OurAnnotation = Omit<Json<AnnotationQuery>, 'target'> & { target: { refId: string } & Record<string, unknown> };

export type OurDashboard = Omit<Json<Dashboard>, 'panels' | 'templating' | 'annotations'> & {
  panels: OurPanel[];
  annotations: { list: OurAnnotation[] };
  templating: { list: OurVariable[] };
};
